"""Calls of the kernel that selects entries."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address, per_row

__all__ = ["entries_jacobian", "entries_with_thresholds", "topk_entries"]


def topk_entries(
    x: Tensor,
    k: int,
    temperature: float | Tensor | None = None,
    mask: Tensor | None = None,
    by_position: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The indices, weights and values of the k largest entries of each row.

    The order is that of a stable descending sort: ties by index, NaN first. Excluded entries come last, with
    weight 0 and value 0, and only if fewer than k others are left.

    Args:
        x: scores, float32 or float64, shape (..., n) with n < 2³²; −inf excludes.
        k: at most n.
        temperature: τ, a number or broadcastable to (..., 1), for the weights of `gated_topk` with the
            logistic gate; None for weights of 1.
        mask: boolean, broadcastable to x; False excludes.
        by_position: order the entries by index instead, still with excluded ones last.

    Returns:
        int64 indices, weights and values of shape (..., k); contiguous, without a graph.
    """
    return _entries(x, k, temperature, mask, by_position, None)


def entries_with_thresholds(
    x: Tensor, k: int, temperature: float | Tensor, mask: Tensor | None, by_position: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """The same, and two numbers per row, shape (rows, 2), which `entries_jacobian` needs."""
    thresholds = x.new_empty(x.numel() // x.shape[-1], 2)
    return _entries(x, k, temperature, mask, by_position, thresholds), thresholds


def _entries(
    x: Tensor,
    k: int,
    temperature: float | Tensor | None,
    mask: Tensor | None,
    by_position: bool,
    thresholds: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    library = compiled_library()
    check("x", x)
    shape, n = x.shape, x.shape[-1]
    x = memory(x)
    if temperature is not None:
        temperature = per_row("temperature", temperature, (*shape[:-1], 1), x.dtype)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    weights = x.new_empty((*shape[:-1], k))
    values = torch.empty_like(weights)
    indices = torch.empty_like(weights, dtype=torch.int64)
    kernel = library.topk_entries_f32 if x.dtype == torch.float32 else library.topk_entries_f64
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        0 if temperature is None else number_or_address(temperature),
        int(by_position),
        indices.data_ptr(),
        weights.data_ptr(),
        values.data_ptr(),
        0 if thresholds is None else thresholds.data_ptr(),
        x.numel() // n if n else 0,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices, weights, values


def entries_jacobian(
    x: Tensor,
    thresholds: Tensor,
    indices: Tensor,
    grad: Tensor,
    temperature: float | Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """The Jacobian of the weights times a vector that is 0 except at the entries.

    Args:
        x: the scores of `entries_with_thresholds`, shape (..., n).
        thresholds: the two numbers per row that it returned.
        indices: the indices that it returned, shape (..., k).
        grad: the vector at these entries, shape (..., k), of the type of x.
        temperature: τ, a number or broadcastable to (..., 1).
        mask: boolean, broadcastable to x; False excludes.

    Returns:
        The product, of the shape of x; contiguous, without a graph.
    """
    library = compiled_library()
    shape, n = x.shape, x.shape[-1]
    x, indices, grad = memory(x), memory(indices), memory(grad)
    temperature = per_row("temperature", temperature, (*shape[:-1], 1), x.dtype)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    out = torch.empty_like(x)
    kernel = library.entries_jacobian_f32 if x.dtype == torch.float32 else library.entries_jacobian_f64
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        thresholds.data_ptr(),
        indices.data_ptr(),
        grad.data_ptr(),
        number_or_address(temperature),
        out.data_ptr(),
        thresholds.shape[0],
        n,
        indices.shape[-1],
        torch.get_num_threads(),
    )
    return out
