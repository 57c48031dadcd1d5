"""What PyTorch itself does, to which ratios refer."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.compare.cost.side import Side

__all__ = ["empty_function", "softmax", "sort", "topk"]


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


def empty_function() -> Side:
    """A function of autograd that does nothing: what any operator written in Python pays to be called."""

    def call(x: Tensor, k: int) -> Tensor:
        return cast("Tensor", _Empty.apply(x))  # pyright: ignore[reportUnknownMemberType]

    note = "saves its input and its result, which it fills"
    name = "empty autograd.Function"
    return Side(name, "torch", torch.__version__, call, "torch", "distribution", note=note)


class _Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.full_like(x, 1 / x.shape[-1])
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        return torch.zeros_like(x)
