"""Features times their weights, where what does not pass can be anything."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gated"]


def gated(x: Tensor, weights: Tensor) -> Tensor:
    """``x * weights``, where 0 · ∞ and 0 · NaN are 0; a feature of weight 0 still gives it a gradient."""
    return torch.where((weights == 0) & ~x.isfinite(), 0, x) * weights
