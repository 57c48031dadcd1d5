"""Calls of isotonic regression and soft ranks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address, per_row

__all__ = ["Projection", "block_sums", "isotonic", "soft_rank", "soft_rank_jacobian"]

Projection = Literal["l2", "kl", "log_kl"]
_PROJECTIONS: dict[Projection, int] = {"l2": 0, "kl": 1, "log_kl": 2}


def isotonic(s: Tensor, w: Tensor, kind: Projection) -> tuple[Tensor, Tensor]:
    """The projection of s on the permutahedron of w, both in decreasing order.

    Args:
        s: float32 or float64, shape (..., n).
        w: like s; if s or w is one row expanded to all, it is read once.
        kind: `l2`, `kl` (of exp s, for positive w) or `log_kl` (the logarithm of exp s on exp w).

    Returns:
        The projection, and the int64 index of the first entry of the block of each entry.
    """
    library = compiled_library()
    check("s", s)
    check("w", w)
    if s.shape != w.shape or s.dtype != w.dtype:
        raise ValueError(
            f"w must be like s, {s.dtype} of shape {tuple(s.shape)}, got {w.dtype} of shape {tuple(w.shape)}"
        )
    shape = s.shape
    p = torch.empty_like(s, memory_format=torch.contiguous_format)
    start = torch.empty_like(p, dtype=torch.int64)
    (s, s_stride), (w, w_stride) = _one_row_or_all(s), _one_row_or_all(w)
    kernel = library.isotonic_f32 if s.dtype == torch.float32 else library.isotonic_f64
    n = shape[-1]
    kernel(
        _PROJECTIONS[kind],
        s.data_ptr(),
        s_stride,
        w.data_ptr(),
        w_stride,
        p.data_ptr(),
        start.data_ptr(),
        p.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return p, start


def _one_row_or_all(rows: Tensor) -> tuple[Tensor, int]:
    """Contiguous memory of the rows and the distance between two; of one row and 0 if all are the same."""
    if rows.numel() and rows.dim() > 1 and not any(rows.stride()[:-1]):
        return memory(rows[(0,) * (rows.dim() - 1)]), 0
    return memory(rows), rows.shape[-1]


def block_sums(values: Tensor, start: Tensor) -> Tensor:
    """At each entry, the sum of the values in its block; ``start`` comes from `isotonic`."""
    library = compiled_library()
    check("values", values)
    values, start = memory(values), memory(start)
    sums = torch.empty_like(values)
    kernel = library.block_sums_f32 if values.dtype == torch.float32 else library.block_sums_f64
    n = values.shape[-1]
    kernel(
        values.data_ptr(),
        start.data_ptr(),
        sums.data_ptr(),
        values.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return sums


def soft_rank(x: Tensor, temperature: float | Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """The projection of ±x/τ on the permutahedron of 1 … n, and the data for its Jacobian.

    Args:
        x: scores, float32 or float64, shape (..., n) with n < 2³².
        temperature: τ, a number or broadcastable to (..., 1).
        descending: rank 1 for the largest.

    Returns:
        The ranks, and the int64 order of each row, with bitwise complements where a block begins.
    """
    library = compiled_library()
    check("x", x)
    shape = x.shape
    x = memory(x)
    temperature = per_row("temperature", temperature, (*shape[:-1], 1), x.dtype)
    ranks = torch.empty_like(x)
    order = torch.empty_like(x, dtype=torch.int64)
    kernel = library.soft_rank_f32 if x.dtype == torch.float32 else library.soft_rank_f64
    n = shape[-1]
    kernel(
        x.data_ptr(),
        number_or_address(temperature),
        int(descending),
        ranks.data_ptr(),
        order.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return ranks, order


def soft_rank_jacobian(grad: Tensor, order: Tensor, temperature: float | Tensor, descending: bool) -> Tensor:
    """The symmetric Jacobian of `soft_rank` times a vector; ``order`` comes from `soft_rank`."""
    library = compiled_library()
    check("grad", grad)
    if grad.shape != order.shape:
        raise ValueError(f"grad must have the shape of order, {tuple(order.shape)}, got {tuple(grad.shape)}")
    grad, order = memory(grad), memory(order)
    temperature = per_row("temperature", temperature, (*grad.shape[:-1], 1), grad.dtype)
    out = torch.empty_like(grad)
    single = grad.dtype == torch.float32
    kernel = library.soft_rank_jacobian_f32 if single else library.soft_rank_jacobian_f64
    n = grad.shape[-1]
    kernel(
        grad.data_ptr(),
        order.data_ptr(),
        number_or_address(temperature),
        int(descending),
        out.data_ptr(),
        grad.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return out
