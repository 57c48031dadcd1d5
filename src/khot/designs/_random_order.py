"""Designs that put the units in a fresh random order before each draw.

Their inclusion probabilities are those of the ordered design; everything else is a mean over n! orders. For a
given order, the ordered design has closed forms.
"""

# Tensor.split has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from khot.designs._places import places_of_ones
from khot.designs.base import KHotDistribution
from khot.kernels import sorting
from khot.relaxations._chunks import at_once

__all__ = ["LONG", "RandomOrder", "random_order"]

LONG = 1 << 15  # from here on rows are shuffled one by one


class RandomOrder(KHotDistribution):
    """The base of designs that shuffle first; subclasses define how to draw from rows in a given order.

    ``ordered`` is the design for a given order.
    """

    ordered: ClassVar[type[KHotDistribution]]

    def _draw_in_order(self, rows: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
        """k-hot rows from probabilities (rows, n), gone through in that order."""
        raise NotImplementedError

    def _chunks(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Iterator[Tensor]:
        rows = self._rows
        rows = rows.expand(*sample_shape, *rows.shape).reshape(-1, self.n)
        for part in rows.split(at_once(self.n)):
            yield self._draw_in_order(part, random_order(part.shape, part.device, generator), generator)

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        k = int(self.k)
        shape = (*sample_shape, *self.batch_shape, k)
        # Written into place: small results kept in a list lie between the large blocks that were freed, and
        # memory grows as if all were kept.
        drawn = torch.empty(math.prod(shape[:-1]), k, dtype=torch.long, device=self._rows.device)
        first = 0
        for x in self._chunks(sample_shape, generator):
            drawn[first : first + len(x)] = places_of_ones(x, k)
            first += len(x)
        return drawn.view(shape)

    def _draw_k_hot(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = list(self._chunks(sample_shape, generator))
        x = drawn[0] if len(drawn) == 1 else torch.cat(drawn)
        return x.view(self._extended_shape(sample_shape))

    def _no_closed_form(self) -> str:
        return (
            "is a mean over all orders of the units; given an order, use the ordered design on "
            "probs[..., order], or take ConditionalPoisson"
        )


def random_order(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """A uniformly random permutation in each row, int64.

    Short rows are sorted by random keys, floats made from two billion different bit patterns. Long rows are
    shuffled one by one, which is faster for them.
    """
    if shape[-1] >= LONG:
        rows = math.prod(shape[:-1])
        orders = [torch.randperm(shape[-1], device=device, generator=generator) for _ in range(rows)]
        return (
            torch.stack(orders).view(shape) if rows else torch.empty(shape, dtype=torch.long, device=device)
        )
    low, high = 0x00800000, 0x7F800000  # the bits of the smallest normal float and of infinity
    bits = torch.randint(low, high, shape, dtype=torch.int32, device=device, generator=generator)
    return sorting.argsort(bits.view(torch.float32))[1] if math.prod(shape) else bits.long()
