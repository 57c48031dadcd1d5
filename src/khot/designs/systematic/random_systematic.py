"""Systematic sampling in random order: the same inclusion probabilities, without the effects of the order."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from khot.designs._arguments import normalised
from khot.designs._random_order import LONG, RandomOrder
from khot.designs.registry import register
from khot.designs.systematic.systematic import Systematic, systematic_indices
from khot.kernels import cpu, operations

__all__ = ["RandomSystematic"]


@register
class RandomSystematic(RandomOrder):
    r"""Systematic sampling after a random permutation, a fresh one for each draw.

    .. math:: P(x_i = 1) = \pi_i \text{ exactly}

    Log-probability, entropy and joint inclusion are sums over n! orders and are not available; for a given
    order they are those of ``Systematic(k, probs[..., order])``. Cost of a draw: O(n) and a shuffle.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = RandomSystematic(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.4]))
        >>> x = design.sample((1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), (x.mean(0) - design.mean).abs().max() < 0.05
        (tensor([2.]), tensor(True))

    Reference: Goodman & Kish (1950); Madow (1949).
    """

    ordered = Systematic

    def _chunks(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Iterator[Tensor]:
        rows = self._rows
        if self.n < LONG or not cpu.usable(rows):
            yield from super()._chunks(sample_shape, generator)
            return
        # The order of a long row is made on the way, of random bytes.
        for row in rows.expand(*sample_shape, *rows.shape).reshape(-1, 1, self.n):
            words = torch.empty(5 * self.n // 8 + 1, dtype=torch.int64)
            words.random_(-(2**63), None, generator=generator)
            u = torch.rand(1, dtype=torch.float64, generator=generator)
            yield cpu.shuffled_systematic(row, int(self.k), u, words)

    def _draw_in_order(self, rows: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
        u = torch.rand((1, len(rows)), dtype=torch.float64, device=rows.device, generator=generator)
        if cpu.usable(rows):
            return cpu.systematic(rows, int(self.k), u, order.unsqueeze(0)).squeeze(0)
        if operations.draws_taken(rows):
            return operations.systematic(rows, int(self.k), u, order.unsqueeze(0)).squeeze(0)
        shuffled = normalised(rows, self.k).gather(-1, order)
        places = systematic_indices(shuffled, int(self.k), u.squeeze(0).unsqueeze(-1))
        return torch.zeros_like(rows).scatter_(-1, order.gather(-1, places), 1.0)
