"""Non-integer k: a phantom unit takes the missing fraction, and is dropped after the draw."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["phantom_indicator", "phantom_probability"]


def phantom_probability(inclusion: Tensor, k: float) -> Tensor:
    """π with ⌈k⌉ − k appended, if k is not an integer."""
    if k == int(k):
        return inclusion
    return torch.nn.functional.pad(inclusion, (0, 1), value=math.ceil(k) - k)


def phantom_indicator(x: Tensor, k: float) -> Tensor:
    """The booleans x with the phantom's appended: True where only ⌊k⌋ units are drawn."""
    if k == int(k):
        return x
    return torch.cat([x, x.sum(-1, keepdim=True) < math.ceil(k)], -1)
