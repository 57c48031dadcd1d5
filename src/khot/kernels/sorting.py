"""Sorting along the last dimension, by the compiled kernel where possible."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import is_exporting
from khot.kernels.loops import as_operation, loops_are_operations

__all__ = ["TOO_LONG", "argsort", "unsorted"]

TOO_LONG = 2**32
"""A row of this many elements has indices that the kernels have no room for."""


def argsort(x: Tensor, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Values and indices of a stable sort: the result of `torch.sort(x, stable=True)`, without a graph.

    Args:
        x: any shape except (), sorted along the last dimension; NaN counts as the largest.
        descending: from the largest to the smallest; equal elements keep their order in both directions.

    Example:
        >>> values, indices = argsort(torch.tensor([3.0, 1.0, 3.0, 2.0]), descending=True)
        >>> indices
        tensor([0, 2, 3, 1])
    """
    if cpu.usable(x) and x.dim() > 0 and x.shape[-1] < TOO_LONG:
        return cpu.argsort(x, descending)
    if operations.taken(x) and x.dim() > 0:
        return operations.argsort(x.detach(), descending)
    if is_exporting():
        # ONNX has no other; its own keeps ties in their order, and so does torch's on the CPU.
        values, indices = torch.sort(x.detach(), dim=-1, descending=descending)
    else:
        values, indices = torch.sort(x.detach(), dim=-1, descending=descending, stable=True)
    return values, indices


def unsorted(values: Tensor, order: Tensor) -> Tensor:
    """Undo a sort: ``values`` (…, n) at their original positions, with ``order`` (…, n) from `argsort`.

    It keeps a graph. Under compilation it is an operation: otherwise Inductor would recompute the positions
    wherever the result is read, and may read the target of a scatter before it is written (torch 2.13; there
    is a contract check for it).
    """
    if not torch.compiler.is_compiling():
        return _at_places(values, order)
    if not loops_are_operations(of_constants=True):
        return values.gather(-1, order.argsort(-1))
    if not values.is_floating_point():
        return _unsorted(values, order)
    if loops_are_operations():
        return cast("Tensor", _Unsorted.apply(values, order))  # pyright: ignore[reportUnknownMemberType]
    place = torch.arange(order.shape[-1], device=order.device).expand(order.shape)
    return values.gather(-1, _unsorted(place, order))


class _Unsorted(torch.autograd.Function):
    """(values, order) → values at their places, in a compiled graph."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, order: Tensor) -> Tensor:
        return _unsorted(values, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return grads[0].gather(-1, order), None


def _at_places(values: Tensor, order: Tensor) -> Tensor:
    return values.new_zeros(values.shape).scatter(-1, order, values)


def _look_at_places(values: Tensor, order: Tensor) -> Tensor:
    return values.new_empty(values.shape)


_unsorted = as_operation("unsorted(Tensor values, Tensor order) -> Tensor", _at_places, _look_at_places)
