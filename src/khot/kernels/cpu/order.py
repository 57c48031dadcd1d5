"""Calls of selection and sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address, per_row

__all__ = ["argsort", "entries_between", "hard_topk"]


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


def entries_between(x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many entries of each row are above ``high``, how many of the others reach ``low``, and these.

    Args:
        x: float32 or float64, shape (rows, n); NaN is nowhere.
        low: (rows, 1), of the type of x, as is
        high: which is included as ``low`` is.

    Returns:
        Two int64 tensors (rows, 1), and the entries, row after row.
    """
    library = compiled_library()
    check("x", x)
    x, low, high = memory(x), memory(low), memory(high)
    rows, n = x.shape
    assert low.shape == high.shape == (rows, 1)
    assert low.dtype == high.dtype == x.dtype
    above, between = torch.empty(2, rows, 1, dtype=torch.int64).unbind()
    single, threads = x.dtype == torch.float32, torch.get_num_threads()
    given = [t.data_ptr() for t in (x, low, high)]
    kernel = library.count_between_f32 if single else library.count_between_f64
    kernel(*given, above.data_ptr(), between.data_ptr(), rows, n, threads)
    starts = between.cumsum(0) - between
    found = x.new_empty(int(between.sum()))
    kernel = library.collect_between_f32 if single else library.collect_between_f64
    kernel(*given, starts.data_ptr(), found.data_ptr(), rows, n, threads)
    return above, between, found


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
