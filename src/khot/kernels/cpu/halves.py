"""Calls of sigmoid top-k for bfloat16 and float16, which the kernel reads and writes directly."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import compiled_library, memory

__all__ = ["HALVES", "sigmoid_half", "sigmoid_half_jacobian"]

#: The types, by their numbers in csrc/kernels.h.
HALVES: dict[torch.dtype, int] = {torch.bfloat16: 0, torch.float16: 1}


def sigmoid_half(
    x: Tensor, k: float, temperature: float, *, thresholds: bool
) -> tuple[Tensor, Tensor | None]:
    """The weights of the logistic gate in the type of x, computed in float32.

    Args:
        x: scores, bfloat16 or float16, shape (..., n), with at least one element.
        k: the budget of all rows.
        temperature: τ.
        thresholds: also return the two float32 numbers per row that `sigmoid_half_jacobian` needs.

    Returns:
        y of the shape of x, and thresholds of shape (rows, 2) or None; contiguous, without a graph.
    """
    x = memory(x)
    n = x.shape[-1]
    rows = x.numel() // n
    y = torch.empty_like(x)
    kept = x.new_empty(rows, 2, dtype=torch.float32) if thresholds else None
    compiled_library().sigmoid_topk_half(
        HALVES[x.dtype],
        x.data_ptr(),
        k,
        temperature,
        y.data_ptr(),
        0 if kept is None else kept.data_ptr(),
        rows,
        n,
        torch.get_num_threads(),
    )
    return y, kept


def sigmoid_half_jacobian(x: Tensor, thresholds: Tensor, grad: Tensor, temperature: float) -> Tensor:
    """The Jacobian of `sigmoid_half` times a vector, from scores and thresholds only, as y was rounded."""
    x, grad = memory(x), memory(grad)
    out = torch.empty_like(x)
    compiled_library().sigmoid_jacobian_half(
        HALVES[x.dtype],
        x.data_ptr(),
        thresholds.data_ptr(),
        grad.data_ptr(),
        temperature,
        out.data_ptr(),
        thresholds.shape[0],
        x.shape[-1],
        torch.get_num_threads(),
    )
    return out
