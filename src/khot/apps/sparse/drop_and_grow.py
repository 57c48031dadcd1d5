r"""Drop and grow, the rule of RigL: drop the smallest kept weights, grow those with the largest gradients.

Only kept weights are trained. At each update the share

.. math:: f(t) = \tfrac{f_0}{2} \bigl(1 + \cos(\pi t / T)\bigr)

of the kept weights, those with the smallest magnitude, is dropped. As many weights grow from 0: those with
the largest gradient of the dense weight. The mask is random at first, and fixed after T steps.

Reference: Evci, Gale, Menick, Castro & Elsen (2020), Rigging the Lottery, arXiv:1911.11134.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from khot.apps.sparse.budgets import check_density
from khot.relaxations._plain_arguments import check_integer
from khot.relaxations.hard import hard_topk

__all__ = ["DropAndGrow"]


@dataclass(frozen=True)
class DropAndGrow:
    """RigL's rule for ``sparsify(update=…)``: drop small weights, grow where the gradient is large.

    Args:
        fraction: the initial share of the kept weights that is exchanged, in [0, 1].
        until: the number of optimiser steps after which masks are fixed.

    Example:
        >>> rule = DropAndGrow(0.3, until=1000)
        >>> [round(rule.share(step), 3) for step in (0, 500, 1000, 2000)]
        [0.3, 0.15, 0.0, 0.0]

    Reference: Evci, Gale, Menick, Castro & Elsen (2020), Rigging the Lottery, arXiv:1911.11134.
    """

    fraction: float = 0.3
    until: int = 50_000

    def __post_init__(self) -> None:
        check_density("DropAndGrow", "fraction", self.fraction)
        check_integer("DropAndGrow", "until", self.until)

    def share(self, step: int) -> float:
        """The share of the kept weights that is exchanged at a step."""
        return self.fraction / 2 * (1 + math.cos(math.pi * min(step / self.until, 1)))

    @torch.no_grad()
    def exchanged(self, weight: Tensor, gradient: Tensor, mask: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The mask after the step, and which of its entries are new and start from 0."""
        kept = int(mask.sum())
        count = min(int(self.share(step) * kept), mask.numel() - kept)
        stays = _largest(weight, kept - count, mask)
        grown = stays | _largest(gradient, count, ~stays)
        return grown, grown & ~mask


def _largest(values: Tensor, count: int, allowed: Tensor) -> Tensor:
    """Which entries are the largest in magnitude, among those that are allowed."""
    chosen = hard_topk(values.detach().abs().flatten(), count, mask=allowed.flatten())
    return chosen.bool().view(values.shape)
