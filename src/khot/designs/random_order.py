"""Designs that put the units in a fresh random order before each draw.

Their inclusion probabilities are those of the ordered design; everything else is a mean over n! orders. Given
the order, the ordered design has the closed forms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.kernels import sorting

__all__ = ["RandomOrder", "random_order"]

# Entries of orders that are in memory at a time: 1024 draws at n = 1e6 would take 8 GB at once.
_AT_ONCE = 1 << 22


class RandomOrder(KHotDistribution):
    """The base of designs that shuffle first; a subclass says how it draws from rows in random order."""

    def _draw_shuffled(self, inclusion: Tensor, generator: torch.Generator | None) -> Tensor:
        raise NotImplementedError

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        inclusion = self._inclusion.detach()
        rows = inclusion.expand(*sample_shape, *inclusion.shape).reshape(-1, self.n)
        chunk = max(1, _AT_ONCE // max(1, self.n))
        drawn = [self._draw_rows(part, generator) for part in rows.split(chunk)] if len(rows) else []
        k = int(self.k)
        indices = torch.cat(drawn) if drawn else torch.empty(0, k, dtype=torch.long, device=rows.device)
        return indices.view(*sample_shape, *self.batch_shape, k)

    def _draw_rows(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        order = random_order(rows.shape, rows.device, generator)
        places = self._draw_shuffled(rows.gather(-1, order), generator)
        return order.gather(-1, places).sort(-1).values

    def _no_closed_form(self) -> str:
        return (
            "is a mean over all orders of the units; given an order, use the ordered design on "
            "probs[..., order], or take ConditionalPoisson"
        )


def random_order(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """A uniformly random permutation in each row, int64.

    Sorted by random normal floats of every size, two billion of them, through their bits: that is as uniform
    as the integers they are, and a third of the price of sorting float64.
    """
    low, high = 0x00800000, 0x7F800000  # the bits of the smallest normal float and of infinity
    bits = torch.randint(low, high, shape, dtype=torch.int32, device=device, generator=generator)
    return sorting.argsort(bits.view(torch.float32))[1] if math.prod(shape) else bits.long()
