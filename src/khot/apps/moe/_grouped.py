"""Multiply each segment of rows by its own matrix: torch's ``grouped_mm`` where possible, else a loop.

The loop over experts is a custom operation, so that a compiled graph can contain it although the lengths of
the segments are known only at run time. Its derivative is an ``autograd.Function`` over such operations.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["grouped_linear", "lengths"]

_library: Any = cast("Any", torch.library)


def grouped_linear(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """``rows[start:end] @ matrices[e].T`` for each expert e, whose rows end at ``ends[e]``.

    Args:
        rows: (P, inputs), those of expert 0 first; rows after ``ends[-1]`` give zeros and have no gradient.
        matrices: (experts, outputs, inputs).
        ends: int64 (experts,), not decreasing.

    Returns:
        (P, outputs).
    """
    if _fits_torch(rows, matrices):
        # Behind the end torch writes neither results nor the gradients of rows: what memory held stays there.
        inside = (torch.arange(rows.shape[0], device=rows.device) < ends[-1]).unsqueeze(-1)
        out = cast("Any", torch.nn.functional).grouped_mm(
            torch.where(inside, rows, 0), matrices.transpose(1, 2), offs=ends.to(torch.int32)
        )
        return torch.where(inside, out, 0)
    return cast("Tensor", _GroupedLinear.apply(rows, matrices, ends))  # pyright: ignore[reportUnknownMemberType]


def _fits_torch(rows: Tensor, matrices: Tensor) -> bool:
    """Whether torch's own kernel computes it: Inductor and other devices take bfloat16 only; rows of 16
    bytes."""
    if not hasattr(torch.nn.functional, "grouped_mm") or rows.dtype != matrices.dtype or not rows.shape[0]:
        return False
    plain = rows.is_cpu and not torch.compiler.is_compiling()
    if rows.dtype not in ((torch.bfloat16, torch.float16, torch.float32) if plain else (torch.bfloat16,)):
        return False
    if rows.is_cpu and not plain:
        return False
    return all(size * rows.element_size() % 16 == 0 for size in matrices.shape[1:])


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
        return torch.ops.khot_moe.linear(rows, matrices, ends)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, matrices, ends = ctx.saved_tensors
        (grad,) = grads
        by_rows = by_matrices = None
        if ctx.needs_input_grad[0]:
            by_rows = torch.ops.khot_moe.linear(grad, matrices.transpose(1, 2).contiguous(), ends)
        if ctx.needs_input_grad[1]:
            by_matrices = torch.ops.khot_moe.outer(grad, rows, ends)
        return by_rows, by_matrices, None


def lengths(ends: Tensor) -> list[int]:
    """The ends of the segments as Python numbers."""
    return cast("list[int]", cast("Any", ends).tolist())


def _linear(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    out = rows.new_zeros(rows.shape[0], matrices.shape[1])
    start = 0
    for expert, end in enumerate(lengths(ends)):
        if end > start:
            torch.mm(rows[start:end], matrices[expert].t(), out=out[start:end])
        start = end
    return out


def _outer(grads: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
    out = rows.new_zeros(ends.shape[0], grads.shape[1], rows.shape[1])
    start = 0
    for expert, end in enumerate(lengths(ends)):
        if end > start:
            torch.mm(grads[start:end].t(), rows[start:end], out=out[expert])
        start = end
    return out


def _define() -> None:
    library = _library.Library("khot_moe", "DEF")
    globals()["_LIBRARY"] = library  # torch forgets what nobody holds
    for name, kernel in (("linear", _linear), ("outer", _outer)):
        library.define(f"{name}(Tensor a, Tensor b, Tensor ends) -> Tensor")
        library.impl(name, kernel, "CompositeExplicitAutograd")

    def linear_like(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
        return rows.new_empty(rows.shape[0], matrices.shape[1])

    def outer_like(grads: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        return rows.new_empty(ends.shape[0], grads.shape[1], rows.shape[1])

    _library.register_fake("khot_moe::linear", linear_like, lib=library)
    _library.register_fake("khot_moe::outer", outer_like, lib=library)


_define()
