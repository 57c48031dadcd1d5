"""Features times their weights, where features of weight 0 may be infinite or NaN."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gated"]


def gated(x: Tensor, weights: Tensor) -> Tensor:
    """``x * weights``, where 0 · ∞ and 0 · NaN are 0; a weight of 0 still gets a gradient."""
    return torch.where((weights == 0) & ~x.isfinite(), 0, x) * weights
