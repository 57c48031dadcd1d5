"""Sigmoid top-k without a saved state: if neither k nor τ needs a gradient, weights and scores are enough.

It is a fast path for the operator of ``_family.py``. For the backward pass it saves only the scores, the
weights and two numbers per row; scores and weights are usually in memory anyway. Changing either in place is
therefore an error in the backward pass, as it is for the result of ``torch.softmax``. The most common call
(plain scores, numbers for k and τ, the last dimension) checks nothing twice, and lets the kernel read and
write 16-bit types.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, empty_like, get_num_threads, is_grad_enabled

from khot.kernels import cpu, operations
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import Number
from khot.relaxations._plain_apply import plain_apply
from khot.relaxations.threshold._functions import weights_gradient
from khot.relaxations.threshold._gates import LOGISTIC

__all__ = ["plain_sigmoid", "sigmoid_from_weights"]


def plain_sigmoid(
    scores: Tensor, k: Number | Tensor, temperature: Number | Tensor, dim: int
) -> Tensor | None:
    """The weights, or None for any other case, errors included: the caller then takes the usual path."""
    if not is_plain(scores) or type(k) is not int or type(temperature) is not float or type(dim) is not int:
        return None
    library = native()
    shape, dtype = scores.shape, scores.dtype
    if library is None or not shape or (dim != -1 and dim != len(shape) - 1):
        return None
    n = shape[-1]
    if not (0 <= k <= n and 1e-30 < temperature < 1e30):
        return None
    single, half = dtype is torch.float32, dtype in cpu.HALVES
    if not (single or half or dtype is torch.float64):
        return None
    if scores.requires_grad and is_grad_enabled():
        return (_apply_half if half else _apply_plain)(scores, float(k), temperature)
    if half:
        return cpu.sigmoid_half(scores, float(k), temperature, thresholds=False)[0]
    if not scores.is_contiguous() or scores.is_neg():
        return None
    y = empty_like(scores)
    kernel = library.sigmoid_topk_f32 if single else library.sigmoid_topk_f64
    rows, threads = scores.numel() // n, get_num_threads()
    kernel(scores.data_ptr(), 0, float(k), temperature, y.data_ptr(), 0, 0, rows, n, threads)
    return y


def sigmoid_from_weights(
    x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None
) -> Tensor:
    """The weights of rows (…, n), float32 or float64, by the kernels; neither k nor τ has a gradient."""
    if torch.compiler.is_compiling():
        return cast("tuple[Tensor, Tensor]", _CompiledSigmoid.apply(x, k, temperature, mask))[0]  # pyright: ignore[reportUnknownMemberType]
    return cast("Tensor", _SavedSigmoid.apply(x, k, temperature, mask))  # pyright: ignore[reportUnknownMemberType]


class _PlainSigmoid(torch.autograd.Function):
    """(x, k, temperature) → weights, by the compiled kernels; eager and reverse mode only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float, temperature: float) -> Tensor:
        y, thresholds = cpu.sigmoid_with_thresholds(x, k, temperature)
        ctx.save_for_backward(x, y, thresholds)
        ctx.numbers = k, temperature
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, y, thresholds = ctx.saved_tensors
        k, temperature = ctx.numbers
        (grad,) = grads
        if not is_grad_enabled() and is_plain(grad) and grad.dtype == y.dtype:
            return cpu.sigmoid_jacobian(y, x, thresholds, grad, temperature), None, None
        # Derivatives of derivatives, or a batch of gradients inside vmap.
        return weights_gradient(LOGISTIC, x, k, temperature, None, grad)[0], None, None


class _SavedSigmoid(torch.autograd.Function):
    """The same with a mask, and with tensors for k and the temperature, which have no gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None
    ) -> Tensor:
        y, thresholds = cpu.sigmoid_with_thresholds(x, k, temperature, mask)
        ctx.numbers = tuple(None if isinstance(t, Tensor) else t for t in (k, temperature))
        tensors = (t if isinstance(t, Tensor) else None for t in (k, temperature))
        ctx.save_for_backward(x, y, thresholds, mask, *tensors)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, y, thresholds, mask, *tensors = ctx.saved_tensors
        k, temperature = (a if t is None else t for a, t in zip(ctx.numbers, tensors, strict=True))
        (grad,) = grads
        if not torch.is_grad_enabled() and is_plain(grad) and grad.dtype == y.dtype:
            return cpu.sigmoid_jacobian(y, x, thresholds, grad, temperature), None, None, None
        return weights_gradient(LOGISTIC, x, k, temperature, mask, grad)[0], None, None, None


class _CompiledSigmoid(torch.autograd.Function):
    """The same by operations in a compiled graph, with tensors for k and the temperature."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return operations.sigmoid_topk(x, k, temperature, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, temperature, mask = inputs
        y, thresholds = output
        ctx.mark_non_differentiable(thresholds)
        ctx.save_for_backward(x, y, thresholds, k, temperature, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, y, thresholds, _, temperature, _ = ctx.saved_tensors
        return operations.sigmoid_jacobian(y, x, thresholds, grads[0], temperature), None, None, None


class _HalfSigmoid(torch.autograd.Function):
    """The same for types of 16 bits; the weights, which were rounded, are not saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float, temperature: float) -> Tensor:
        y, thresholds = cpu.sigmoid_half(x, k, temperature, thresholds=True)
        ctx.save_for_backward(x, thresholds)
        ctx.numbers = k, temperature
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, thresholds = ctx.saved_tensors
        k, temperature = ctx.numbers
        (grad,) = grads
        if not torch.is_grad_enabled() and is_plain(grad) and grad.dtype == x.dtype:
            return cpu.sigmoid_half_jacobian(x, thresholds, grad, temperature), None, None
        wide = weights_gradient(LOGISTIC, x.float(), k, temperature, None, grad.float())[0]
        return wide.to(x.dtype), None, None


_apply_plain, _apply_half = plain_apply(_PlainSigmoid), plain_apply(_HalfSigmoid)
