"""Sums that are not whole: a phantom unit takes the missing fraction, and is dropped after the draw."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["phantom_indicator", "phantom_probability"]


def phantom_probability(inclusion: Tensor, k: float) -> Tensor:
    """π with ⌈k⌉ − k appended, if k is not whole."""
    if k == int(k):
        return inclusion
    return torch.nn.functional.pad(inclusion, (0, 1), value=math.ceil(k) - k)


def phantom_indicator(x: Tensor, k: float) -> Tensor:
    """Booleans x with that of the phantom appended: True where only ⌊k⌋ are drawn."""
    if k == int(k):
        return x
    return torch.cat([x, x.sum(-1, keepdim=True) < math.ceil(k)], -1)
