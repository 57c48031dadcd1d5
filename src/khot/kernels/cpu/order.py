"""Calls of selection and sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address, per_row

__all__ = ["argsort", "hard_topk"]


def hard_topk(x: Tensor, k: float | Tensor, mask: Tensor | None = None) -> Tensor:
    """Ones at the k largest of each row, zeros elsewhere.

    Ties go to the lower index, NaN counts as the largest, −inf is never selected.

    Args:
        x: scores, float32 or float64, shape (..., n).
        k: an integer for all rows, or one per row: broadcastable to (..., 1).
        mask: boolean, broadcastable to x; entries with False are never selected.

    Returns:
        min(k, allowed) ones per row, in the shape and dtype of x; contiguous, without a graph.
    """
    library = compiled_library()
    check("x", x)
    shape = x.shape
    x = memory(x)
    k = per_row("k", k, (*shape[:-1], 1), torch.int64)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    out = torch.empty_like(x)
    kernel = library.hard_topk_f32 if x.dtype == torch.float32 else library.hard_topk_f64
    n = shape[-1]
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        number_or_address(k),
        out.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return out


def argsort(x: Tensor, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sort each row, with indices: `torch.sort(x, stable=True)`.

    Args:
        x: float32 or float64, shape (..., n) with n < 2³²; NaN counts as the largest.
        descending: from the largest to the smallest; equal elements keep their order in both directions.

    Returns:
        The values and the int64 indices, in the shape of x; contiguous, without a graph.
    """
    library = compiled_library()
    check("x", x)
    n = x.shape[-1]
    x = memory(x)
    values = torch.empty_like(x)
    indices = torch.empty_like(x, dtype=torch.int64)
    kernel = library.argsort_f32 if x.dtype == torch.float32 else library.argsort_f64
    kernel(
        x.data_ptr(),
        int(descending),
        values.data_ptr(),
        indices.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return values, indices
