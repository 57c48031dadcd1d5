"""Calls the compiled kernels with CPU tensors.

Each function here makes its inputs contiguous, allocates its outputs, and passes addresses and sizes. None
records a graph or knows of autograd: that is the business of the operators that call them. Ask `usable`
first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from khot.kernels.loader import Native, native

__all__ = ["gate_jacobian", "usable"]

_DTYPES = (torch.float32, torch.float64)


def usable(*tensors: Tensor) -> bool:
    """Whether a compiled kernel may be called with these tensors, here and now.

    It may when the library is there and each tensor is ordinary memory: a plain CPU tensor (or Parameter)
    of float32 or float64. It may not when something must see the torch operations happen, or there is no
    memory to point at: compilation, export and tracing, dispatch modes (fake tensors, counters), functorch
    wrappers, forward-mode duals, subclasses, and tensors without elements.
    """
    if (
        torch.compiler.is_compiling()  # first: nothing after it can be traced
        or native() is None
        or torch._C._is_tracing()  # pyright: ignore[reportPrivateUsage]
        or torch._C._len_torch_dispatch_stack() > 0  # pyright: ignore[reportPrivateUsage]
    ):
        return False
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or not tensor.is_cpu or tensor.dtype not in _DTYPES:
            return False
        try:
            # The cheapest question to which everything without memory of its own has an odd answer: a
            # functorch wrapper or a sparse tensor raises; a symbolic zero, a functionalised or an empty
            # tensor is at 0.
            if tensor.data_ptr() == 0:
                return False
        except RuntimeError:
            return False
        # Outside of dual_level() no tensor is a dual, and asking for the level is 20 times cheaper.
        if _dual_level() >= 0 and _is_dual(tensor):
            return False
    return True


def _dual_level() -> int:
    return forward_ad._current_level  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]


def _is_dual(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # pyright: ignore[reportUnknownMemberType]


def gate_jacobian(residual: Tensor, grad: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    r"""The Jacobian of a gated top-k times a vector, and the weighted mean in it.

    .. math:: \text{out}_i = \frac{w_i}{\tau} (g_i - m), \qquad m = \frac{\sum_j w_j g_j}{\sum_j w_j},
              \qquad w = |r| (1 - |r|)

    An entry with w = 0 takes no part in m and gets exactly 0, even where g is not finite; a row with no
    weight at all has m = 0.

    Args:
        residual: r, the signed distance of the weights to the nearer of 0 and 1, shape (..., n).
        grad: g, of the same shape and type.
        temperature: τ, broadcastable to (..., 1).

    Returns:
        out of shape (..., n) and m of shape (..., 1), contiguous, without a graph.
    """
    library = _library()
    dtype, shape = residual.dtype, residual.shape
    if dtype not in _DTYPES or not residual.is_cpu:
        raise TypeError(f"residual must be float32 or float64 on the CPU, got {dtype} on {residual.device}")
    if not shape:
        raise ValueError("residual must have at least one dimension, got a scalar")
    if grad.shape != shape or grad.dtype != dtype or not grad.is_cpu:
        raise ValueError(
            f"grad must be like residual, {dtype} of shape {tuple(shape)} on the CPU, "
            f"got {grad.dtype} of shape {tuple(grad.shape)} on {grad.device}"
        )
    row_shape = (*shape[:-1], 1)
    per_row = temperature.numel() != 1
    if per_row:
        temperature = _per_row(temperature, row_shape)
    if temperature.dtype != dtype or not temperature.is_cpu:
        temperature = temperature.to("cpu", dtype)
    # The names keep these alive until the kernel is done with their memory.
    residual, grad, temperature = _memory(residual), _memory(grad), _memory(temperature)
    out = torch.empty_like(residual)  # contiguous like its model, and half the price of empty(shape)
    mean = residual.new_empty(row_shape)
    kernel = library.gate_jacobian_f32 if dtype == torch.float32 else library.gate_jacobian_f64
    kernel(
        residual.data_ptr(),
        grad.data_ptr(),
        temperature.data_ptr(),
        int(per_row),
        out.data_ptr(),
        mean.data_ptr(),
        mean.numel(),
        shape[-1],
        torch.get_num_threads(),
    )
    return out, mean


def _per_row(temperature: Tensor, row_shape: tuple[int, ...]) -> Tensor:
    try:
        return temperature.expand(row_shape)
    except RuntimeError as error:
        raise ValueError(
            f"temperature must broadcast to {row_shape}, got one of shape {tuple(temperature.shape)}"
        ) from error


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
