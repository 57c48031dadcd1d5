"""Calls of the threshold family: weights and their Jacobian products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, empty_like, get_num_threads

from khot.kernels.cpu.passing import check, compiled_library, memory, number_or_address, per_row
from khot.kernels.loader import Native

__all__ = [
    "GATE_NUMBERS",
    "GateKind",
    "gate_jacobian",
    "gated_topk",
    "sigmoid_jacobian",
    "sigmoid_with_thresholds",
]

GateKind = Literal["logistic", "laplace", "sparse", "normal"]
GATE_NUMBERS: dict[GateKind, int] = {"logistic": 0, "laplace": 1, "sparse": 2, "normal": 3}
"""As in csrc/kernels.h."""
_LOGISTIC_BY_WEIGHT = 4
_POWER = 5  # the sparse gate of another norm than 2


def gated_topk(
    gate: GateKind,
    x: Tensor,
    k: float | Tensor,
    temperature: float | Tensor,
    mask: Tensor | None = None,
    *,
    norm: float = 2.0,
    state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    r"""The weights :math:`y_i = F((x_i + c)/\tau)` with sum k, of each row.

    Args:
        gate: F.
        x: scores, float32 or float64, shape (..., n); −inf is never selected, +inf always.
        k: the budget, a number for all rows, or one per row: broadcastable to (..., 1).
        temperature: τ, a number or one per row, like k.
        mask: boolean, broadcastable to x; False excludes.
        norm: q of the sparse gate, in (1, 2]; 2 for all others.
        state: also return the state that `gate_jacobian` needs: the signed distance of each weight to the
            nearer of 0 and 1; for the sparse gate the weights again; for the normal gate its argument. If no
            score can change a weight, its state has slope 0.

    Returns:
        y of the shape of x, and the state or None; contiguous, without a graph.
    """
    library = compiled_library()
    check("x", x)
    shape, dtype = x.shape, x.dtype
    row_shape = (*shape[:-1], 1)
    x = memory(x)
    k = per_row("k", k, row_shape, torch.float64)
    temperature = per_row("temperature", temperature, row_shape, dtype)
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    y = torch.empty_like(x)  # contiguous like its model, and half the price of empty(shape)
    saved = torch.empty_like(x) if state else None
    kernel = _gated_kernel(library, gate, norm, dtype == torch.float32)
    n = shape[-1]
    kernel(
        *((norm,) if gate == "sparse" else ()),
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        number_or_address(k),
        number_or_address(temperature),
        y.data_ptr(),
        0 if saved is None else saved.data_ptr(),
        *((0,) if gate == "logistic" else ()),  # no thresholds
        x.numel() // n if n else 0,
        n,
        torch.get_num_threads(),
    )
    return y, saved


def _gated_kernel(library: Native, gate: GateKind, norm: float, single: bool) -> Callable[..., None]:
    if gate == "logistic":
        return library.sigmoid_topk_f32 if single else library.sigmoid_topk_f64
    if gate == "laplace":
        return library.laplace_topk_f32 if single else library.laplace_topk_f64
    if gate == "normal":
        return library.normal_topk_f32 if single else library.normal_topk_f64
    return library.sparse_topk_f32 if single else library.sparse_topk_f64


def gate_jacobian(
    state: Tensor, grad: Tensor, temperature: float | Tensor, gate: GateKind = "logistic", norm: float = 2.0
) -> tuple[Tensor, Tensor]:
    r"""The Jacobian of a gated top-k times a vector, and the weighted mean in it.

    .. math:: \text{out}_i = \frac{w_i}{\tau} (g_i - m), \qquad m = \frac{\sum_j w_j g_j}{\sum_j w_j}

    with w = \|r\|(1 − \|r\|) for the logistic gate, \|r\| for the Laplace gate, for the sparse gate
    r^(2−q)/(q − 1) where 0 < r < 1 and 0 elsewhere, and for the normal gate φ(r).

    An entry with w = 0 takes no part in m and gets exactly 0, even where g is not finite; a row with no
    weight at all has m = 0.

    Args:
        state: r, from `gated_topk`, shape (..., n).
        grad: g, of the same shape and type.
        temperature: τ, a number or broadcastable to (..., 1).
        gate: F.
        norm: q of the sparse gate, in (1, 2]; 2 for all others.

    Returns:
        out of shape (..., n) and m of shape (..., 1), contiguous, without a graph.
    """
    library = compiled_library()
    check("state", state)
    dtype, shape = state.dtype, state.shape
    if grad.shape != shape or grad.dtype != dtype or not grad.is_cpu:
        raise ValueError(
            f"grad must be like state, {dtype} of shape {tuple(shape)} on the CPU, "
            f"got {grad.dtype} of shape {tuple(grad.shape)} on {grad.device}"
        )
    row_shape = (*shape[:-1], 1)
    # The names keep these alive until the kernel is done with their memory.
    temperature = per_row("temperature", temperature, row_shape, dtype)
    state, grad = memory(state), memory(grad)
    out = torch.empty_like(state)
    mean = state.new_empty(row_shape)
    kernel = library.gate_jacobian_f32 if dtype == torch.float32 else library.gate_jacobian_f64
    kernel(
        GATE_NUMBERS[gate] if norm == 2 else _POWER,
        norm,
        state.data_ptr(),
        0,
        0,
        grad.data_ptr(),
        number_or_address(temperature),
        out.data_ptr(),
        mean.data_ptr(),
        mean.numel(),
        shape[-1],
        torch.get_num_threads(),
    )
    return out, mean


def sigmoid_with_thresholds(
    x: Tensor, k: float | Tensor, temperature: float | Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""The weights of the logistic gate, and for each row the two numbers that `sigmoid_jacobian` needs.

    They are a and t of :math:`y_i = u_i/(u_i + t)`, :math:`u_i = e^{(x_i - a)/\tau}`; t = 0 in a row whose
    weights no score can change.

    Args:
        x: scores, float32 or float64, shape (..., n).
        k: the budget, a number for all rows, or one per row: broadcastable to (..., 1).
        temperature: τ, a number or one per row, like k.
        mask: boolean, broadcastable to x; False excludes.

    Returns:
        y of the shape of x and the thresholds of shape (..., 2), contiguous, without a graph.
    """
    library = compiled_library()
    check("x", x)
    x = memory(x)
    shape, dtype = x.shape, x.dtype
    rows, n = shape[:-1], shape[-1]
    k = per_row("k", k, (*rows, 1), torch.float64) if isinstance(k, Tensor) else float(k)
    if isinstance(temperature, Tensor):
        temperature = per_row("temperature", temperature, (*rows, 1), dtype)
    else:
        temperature = float(temperature)  # an int would be an address
    if mask is not None:
        mask = mask.expand(shape).contiguous()
    y, thresholds = empty_like(x), x.new_empty(*rows, 2)  # a tuple of sizes would cost half as much again
    kernel = library.sigmoid_topk_f32 if dtype is torch.float32 else library.sigmoid_topk_f64
    kernel(
        x.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        number_or_address(k),
        number_or_address(temperature),
        y.data_ptr(),
        0,
        thresholds.data_ptr(),
        thresholds.numel() // 2,
        n,
        get_num_threads(),
    )
    return y, thresholds


def sigmoid_jacobian(
    y: Tensor, x: Tensor, thresholds: Tensor, grad: Tensor, temperature: float | Tensor
) -> Tensor:
    """`gate_jacobian` of the logistic gate from the weights themselves, without the mean.

    If a weight is so close to 1 that 1 − y has lost digits, its slope is computed from score and threshold.

    Args:
        y: the weights from `sigmoid_with_thresholds`, shape (..., n).
        x: its scores, of the same shape.
        thresholds: the thresholds that it returned.
        grad: a vector, of the shape and type of y.
        temperature: τ, a number or broadcastable to (..., 1).
    """
    library = compiled_library()
    x, y, grad = memory(x), memory(y), memory(grad)
    if isinstance(temperature, Tensor):
        temperature = per_row("temperature", temperature, (*y.shape[:-1], 1), y.dtype)
    else:
        temperature = float(temperature)
    out = empty_like(y)
    kernel = library.gate_jacobian_f32 if y.dtype is torch.float32 else library.gate_jacobian_f64
    kernel(
        _LOGISTIC_BY_WEIGHT,
        2.0,
        y.data_ptr(),
        x.data_ptr(),
        thresholds.data_ptr(),
        grad.data_ptr(),
        number_or_address(temperature),
        out.data_ptr(),
        0,
        thresholds.numel() // 2,
        y.shape[-1],
        get_num_threads(),
    )
    return out
