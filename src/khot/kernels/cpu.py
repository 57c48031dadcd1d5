"""Calls the compiled kernels with CPU tensors.

Each function here makes its inputs contiguous, allocates its outputs, and passes addresses and sizes. None
records a graph or knows of autograd: that is the business of the operators that call them. Ask `usable`
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.kernels.loader import Native, native

__all__ = [
    "GateKind",
    "Projection",
    "argsort",
    "block_sums",
    "gate_jacobian",
    "gated_topk",
    "hard_topk",
    "isotonic",
    "pivotal",
    "soft_rank",
    "soft_rank_jacobian",
    "subsets",
    "systematic",
    "usable",
]

_DTYPES = (torch.float32, torch.float64)

GateKind = Literal["logistic", "laplace", "sparse"]
Projection = Literal["l2", "kl", "log_kl"]
_PROJECTIONS: dict[Projection, int] = {"l2": 0, "kl": 1, "log_kl": 2}
_GATES: dict[GateKind, int] = {"logistic": 0, "laplace": 1, "sparse": 2}  # as in csrc/kernels.h


def usable(*tensors: Tensor) -> bool:
    """Whether a compiled kernel may be called with these tensors, here and now.

    It may when the library is there and each tensor is plain memory of float32 or float64.
    """
    return is_plain(*tensors) and native() is not None and all(t.dtype in _DTYPES for t in tensors)


def gated_topk(
    gate: GateKind,
    x: Tensor,
    k: float | Tensor,
    temperature: float | Tensor,
    mask: Tensor | None = None,
    *,
    state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    r"""The weights :math:`y_i = F((x_i + c)/\tau)` with sum k, of each row.

    Args:
        gate: F.
        x: scores, float32 or float64, shape (..., n); −inf excludes, +inf surely selects.
        k: the budget of all rows, or one a row: shape broadcastable to (..., 1).
        temperature: τ, likewise.
        mask: boolean, broadcastable to x; False excludes.
        state: also give what `gate_jacobian` needs: the signed distance of each weight to the nearer of
            0 and 1; for the sparse gate the weights again.

    Returns:
        y of the shape of x, and the state or None; contiguous, without a graph.
    """
    library = _library()
    _check("x", x)
    shape, dtype = x.shape, x.dtype
    row_shape = (*shape[:-1], 1)
    x = _memory(x)
    k = _per_row("k", k, row_shape, torch.float64)
    temperature = _per_row("temperature", temperature, row_shape, dtype)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    y = torch.empty_like(x)  # contiguous like its model, and half the price of empty(shape)
    saved = torch.empty_like(x) if state else None
    kernel = _gated_kernel(library, gate, dtype == torch.float32)
    n = shape[-1]
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        _number_or_address(k),
        _number_or_address(temperature),
        y.data_ptr(),
        0 if saved is None else saved.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return y, saved


def _gated_kernel(library: Native, gate: GateKind, single: bool) -> Callable[..., None]:
    if gate == "logistic":
        return library.sigmoid_topk_f32 if single else library.sigmoid_topk_f64
    if gate == "laplace":
        return library.laplace_topk_f32 if single else library.laplace_topk_f64
    return library.sparse_topk_f32 if single else library.sparse_topk_f64


def gate_jacobian(
    state: Tensor, grad: Tensor, temperature: float | Tensor, gate: GateKind = "logistic"
) -> tuple[Tensor, Tensor]:
    r"""The Jacobian of a gated top-k times a vector, and the weighted mean in it.

    .. math:: \text{out}_i = \frac{w_i}{\tau} (g_i - m), \qquad m = \frac{\sum_j w_j g_j}{\sum_j w_j}

    with w = \|r\|(1 − \|r\|) for the logistic gate, \|r\| for the Laplace gate, and for the sparse gate 1
    where 0 < r < 1 and 0 elsewhere.

    An entry with w = 0 takes no part in m and gets exactly 0, even where g is not finite; a row with no
    weight at all has m = 0.

    Args:
        state: r, from `gated_topk`, shape (..., n).
        grad: g, of the same shape and type.
        temperature: τ, a number or broadcastable to (..., 1).
        gate: F.

    Returns:
        out of shape (..., n) and m of shape (..., 1), contiguous, without a graph.
    """
    library = _library()
    _check("state", state)
    dtype, shape = state.dtype, state.shape
    if grad.shape != shape or grad.dtype != dtype or not grad.is_cpu:
        raise ValueError(
            f"grad must be like state, {dtype} of shape {tuple(shape)} on the CPU, "
            f"got {grad.dtype} of shape {tuple(grad.shape)} on {grad.device}"
        )
    row_shape = (*shape[:-1], 1)
    # The names keep these alive until the kernel is done with their memory.
    temperature = _per_row("temperature", temperature, row_shape, dtype)
    state, grad = _memory(state), _memory(grad)
    out = torch.empty_like(state)
    mean = state.new_empty(row_shape)
    kernel = library.gate_jacobian_f32 if dtype == torch.float32 else library.gate_jacobian_f64
    kernel(
        _GATES[gate],
        state.data_ptr(),
        grad.data_ptr(),
        _number_or_address(temperature),
        out.data_ptr(),
        mean.data_ptr(),
        mean.numel(),
        shape[-1],
        torch.get_num_threads(),
    )
    return out, mean


def hard_topk(x: Tensor, k: float | Tensor, mask: Tensor | None = None) -> Tensor:
    """Ones at the k largest of each row, zeros elsewhere.

    Ties go to the lower index, NaN counts as the largest, −inf is never selected.

    Args:
        x: scores, float32 or float64, shape (..., n).
        k: a whole number for all rows, or one a row: shape broadcastable to (..., 1).
        mask: boolean, broadcastable to x; False is never selected.

    Returns:
        min(k, allowed) ones a row, in the shape and dtype of x; contiguous, without a graph.
    """
    library = _library()
    _check("x", x)
    shape = x.shape
    x = _memory(x)
    k = _per_row("k", k, (*shape[:-1], 1), torch.int64)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    out = torch.empty_like(x)
    kernel = library.hard_topk_f32 if x.dtype == torch.float32 else library.hard_topk_f64
    n = shape[-1]
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        _number_or_address(k),
        out.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return out


def argsort(x: Tensor, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Each row sorted, and where its elements were: `torch.sort(x, stable=True)`.

    Args:
        x: float32 or float64, shape (..., n) with n < 2³²; NaN counts as the largest.
        descending: from the largest down; equal elements keep their order in both directions.

    Returns:
        The values and the int64 indices, in the shape of x; contiguous, without a graph.
    """
    library = _library()
    _check("x", x)
    n = x.shape[-1]
    x = _memory(x)
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


def isotonic(s: Tensor, w: Tensor, kind: Projection) -> tuple[Tensor, Tensor]:
    """The projection of s, sorted from the largest down, on the permutahedron of w, sorted likewise.

    Args:
        s: float32 or float64, shape (..., n).
        w: likewise; a row that was expanded to all, of s or of w, is read once.
        kind: `l2`, `kl` (of exp s, for positive w) or `log_kl` (the logarithm of exp s on exp w).

    Returns:
        The projection, and the int64 index of the first entry of the block of each entry.
    """
    library = _library()
    _check("s", s)
    _check("w", w)
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
        return _memory(rows[(0,) * (rows.dim() - 1)]), 0
    return _memory(rows), rows.shape[-1]


def block_sums(values: Tensor, start: Tensor) -> Tensor:
    """The sum of the values of its block at each entry; ``start`` as `isotonic` gives it."""
    library = _library()
    _check("values", values)
    values, start = _memory(values), _memory(start)
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
    """The projection of ±x/τ on the permutahedron of 1 … n, and what its Jacobian needs.

    Args:
        x: scores, float32 or float64, shape (..., n) with n < 2³².
        temperature: τ, a number or broadcastable to (..., 1).
        descending: rank 1 for the largest.

    Returns:
        The ranks, and the int64 order of each row, complemented where a block begins.
    """
    library = _library()
    _check("x", x)
    shape = x.shape
    x = _memory(x)
    temperature = _per_row("temperature", temperature, (*shape[:-1], 1), x.dtype)
    ranks = torch.empty_like(x)
    order = torch.empty_like(x, dtype=torch.int64)
    kernel = library.soft_rank_f32 if x.dtype == torch.float32 else library.soft_rank_f64
    n = shape[-1]
    kernel(
        x.data_ptr(),
        _number_or_address(temperature),
        int(descending),
        ranks.data_ptr(),
        order.data_ptr(),
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return ranks, order


def soft_rank_jacobian(grad: Tensor, order: Tensor, temperature: float | Tensor, descending: bool) -> Tensor:
    """The symmetric Jacobian of `soft_rank` times a vector; ``order`` as that gives it."""
    library = _library()
    _check("grad", grad)
    if grad.shape != order.shape:
        raise ValueError(f"grad must have the shape of order, {tuple(order.shape)}, got {tuple(grad.shape)}")
    grad, order = _memory(grad), _memory(order)
    temperature = _per_row("temperature", temperature, (*grad.shape[:-1], 1), grad.dtype)
    out = torch.empty_like(grad)
    single = grad.dtype == torch.float32
    kernel = library.soft_rank_jacobian_f32 if single else library.soft_rank_jacobian_f64
    n = grad.shape[-1]
    kernel(
        grad.data_ptr(),
        order.data_ptr(),
        _number_or_address(temperature),
        int(descending),
        out.data_ptr(),
        grad.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return out


def systematic(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Systematic draws: ones at the units over the points u, u + 1, … on the cumulative sums.

    Args:
        probs: inclusion probabilities, float32 or float64, shape (..., n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, ...).
        order: int64 permutations, shape (draws, ..., n), in which the units are gone through.

    Returns:
        Zeros and ones of shape (draws, ..., n), in the dtype of probs, exactly k ones in each row.
    """
    library = _library()
    _check("probs", probs)
    probs, u = _memory(probs), _memory(u)
    order = None if order is None else _memory(order)
    n = probs.shape[-1]
    out = torch.empty((*u.shape, n), dtype=probs.dtype)
    kernel = library.systematic_f32 if probs.dtype == torch.float32 else library.systematic_f64
    kernel(
        probs.data_ptr(),
        0 if order is None else order.data_ptr(),
        u.data_ptr(),
        out.data_ptr(),
        u.shape[0],
        probs.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out


def pivotal(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Tree pivotal draws.

    Args:
        probs: inclusion probabilities, float32 or float64, shape (..., n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, ..., leaves − 1), for the inner nodes of a heap whose leaves are
            n rounded up to a power of two.
        order: int64 permutations, shape (draws, ..., n), in which the units are put below the tree.

    Returns:
        Zeros and ones of shape (draws, ..., n), in the dtype of probs, exactly k ones in each row.
    """
    library = _library()
    _check("probs", probs)
    probs, u = _memory(probs), _memory(u)
    order = None if order is None else _memory(order)
    n = probs.shape[-1]
    out = torch.empty((*u.shape[:-1], n), dtype=probs.dtype)
    kernel = library.pivotal_f32 if probs.dtype == torch.float32 else library.pivotal_f64
    kernel(
        probs.data_ptr(),
        0 if order is None else order.data_ptr(),
        u.data_ptr(),
        u.shape[-1],
        out.data_ptr(),
        u.shape[0],
        probs.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out


def subsets(weights: Tensor, u: Tensor) -> Tensor:
    """Draws of k of n units, with probability proportional to the product of their weights.

    Args:
        weights: float64, shape (..., n), not negative; sums of products of k of them must not overflow.
        u: float64 in [0, 1), shape (draws, ..., k) with 1 ≤ k ≤ n.

    Returns:
        Increasing int64 indices, in the shape of u.
    """
    library = _library()
    _check("weights", weights)
    weights, u = _memory(weights), _memory(u)
    n, k = weights.shape[-1], u.shape[-1]
    indices = torch.empty(u.shape, dtype=torch.int64)
    library.subsets(
        weights.data_ptr(),
        u.data_ptr(),
        indices.data_ptr(),
        u.shape[0],
        weights.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices


def _check(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in _DTYPES or not tensor.is_cpu:
        raise TypeError(
            f"{name} must be float32 or float64 on the CPU, got {tensor.dtype} on {tensor.device}"
        )
    if not tensor.shape:
        raise ValueError(f"{name} must have at least one dimension, got a scalar")


def _per_row(
    name: str, value: float | Tensor, row_shape: tuple[int, ...], dtype: torch.dtype
) -> float | Tensor:
    """A float for all rows, or contiguous memory with one value a row."""
    if not isinstance(value, Tensor):
        return float(value)
    if value.numel() == 1:
        return float(value)
    try:
        value = value.expand(row_shape)
    except RuntimeError as error:
        raise ValueError(
            f"{name} must broadcast to {row_shape}, got one of shape {tuple(value.shape)}"
        ) from error
    return _memory(value.to("cpu", dtype))


def _number_or_address(value: float | Tensor) -> float:
    return value.data_ptr() if isinstance(value, Tensor) else value


def _library() -> Native:
    library = native()
    if library is None:
        raise RuntimeError("the compiled library is not available: ask khot.kernels.cpu.usable() first")
    return library


def _memory(tensor: Tensor) -> Tensor:
    """The tensor with its values in memory, in order: itself when they are already."""
    if tensor.is_neg():  # a view that is negated only when read
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
