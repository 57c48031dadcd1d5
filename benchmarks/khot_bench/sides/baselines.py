"""What PyTorch itself does, to which ratios refer."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.compare.cost.side import Side

__all__ = ["softmax", "sort", "topk"]


def softmax() -> Side:
    """`torch.softmax`, the price of one-hot."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.softmax(x, -1)

    return Side("torch.softmax", "torch", torch.__version__, call, "torch", "distribution")


def topk() -> Side:
    """`torch.topk`, the hard selection with sorted values."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.topk(x, k).values

    return Side("torch.topk", "torch", torch.__version__, call, "torch", "values")


def sort() -> Side:
    """`torch.sort`, values and indices, as it is by default: not stable."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.sort(x).values

    return Side("torch.sort", "torch", torch.__version__, call, "torch", "values")
