r"""Inclusion probabilities proportional to sizes, none above 1.

With sizes in increasing order and :math:`S_a = p_1 + … + p_a`, the probabilities of a draw of m units are
:math:`\min(1, c_m p)`. Unit a has probability 1 if

.. math:: m \ge B_a = (n - a) + S_a / p_a.

B falls along the order, so the units with probability 1 are always the largest, and one sort serves every m.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["held_from"]


def held_from(increasing: Tensor) -> tuple[Tensor, Tensor]:
    """B and S of sizes (…, n) in increasing order; B is +inf where the size is 0."""
    n = increasing.shape[-1]
    sums = increasing.cumsum(-1)
    positive = increasing > 0
    larger = torch.arange(n - 1, -1, -1, device=increasing.device)
    bound = larger + (sums / torch.where(positive, increasing, 1.0)).detach()
    # Rounding must not let a smaller unit be held before a larger one.
    return torch.where(positive, bound, torch.inf).cummin(-1).values, sums
