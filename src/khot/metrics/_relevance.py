"""Check how relevant each entry of a ranking is, and convert it to gains."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_choice

__all__ = ["Gain", "check_gain", "check_relevance", "relative_gains"]

Gain = Literal["exponential", "linear"]


def check_gain(name: str, gain: str) -> None:
    """Raise unless ``gain`` is ``"linear"`` or ``"exponential"``."""
    check_choice(name, "gain", gain, ("exponential", "linear"))


def check_relevance(name: str, relevance: Tensor, *, binary: bool = False) -> None:
    """Raise unless ``relevance``, after masking, is finite and not negative, or with ``binary`` 0 or 1."""
    if relevance.dtype == torch.bool or not is_plain(relevance):
        return
    low, high = relevance.aminmax()
    if not (low >= 0 and high < math.inf):
        raise ValueError(
            f"{name}: relevance must be finite and not negative, "
            f"got values in [{low.item():g}, {high.item():g}]"
        )
    if binary:
        other = relevance[(relevance != 0) & (relevance != 1)]
        if other.numel():
            raise ValueError(
                f"{name}: relevance must be binary, False or True or 0 or 1, got {other[0].item():g}; "
                "of grades take those that count as relevant, such as relevance > 0"
            )


def relative_gains(relevance: Tensor, gain: Gain, dtype: torch.dtype) -> Tensor:
    """Gains along the last dimension, divided by the largest of the row; the factor cancels in DCG/IDCG.

    ``"linear"`` is the relevance itself, ``"exponential"`` is 2^relevance − 1, which would overflow without
    the division, as a large relevance in float64 would in a narrower ``dtype``.
    """
    if relevance.dtype != torch.float64:
        relevance = relevance.to(dtype)
    if relevance.shape[-1] == 0:
        return relevance.to(dtype)
    largest = relevance.amax(-1, keepdim=True)
    top = torch.where(largest > 0, largest, 1)
    if gain == "linear":
        return (relevance / top).to(dtype)
    # (2^v − 1)/(2^m − 1) = 2^(v − m) (1 − 2^−v)/(1 − 2^−m)
    shares = torch.expm1(-math.log(2) * relevance) / torch.expm1(-math.log(2) * top)
    return (torch.exp2(relevance - top) * shares).to(dtype)
