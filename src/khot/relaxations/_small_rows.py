"""Short rows of operators with one row per rank: one kernel call for the result, and one for the gradient.

For small inputs the time goes into starting operations. If the scores are plain, k and τ are numbers and
there is no mask, one kernel does everything. All other cases (higher derivatives, batched gradients,
transforms, infinite scores) take the operator's usual path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import Number
from khot.relaxations._plain_apply import plain_apply

__all__ = ["MOST", "SmallKernel", "small_matrix", "small_weights"]

MOST = 256  # entries of a row: beyond it the kernels, some of which compare all pairs, gain nothing
_DTYPES = (torch.float32, torch.float64)
_LEAST = 1e-10  # of temperatures
_WORK = 1 << 17  # entries of all rows of all ranks, likewise


class SmallKernel(NamedTuple):
    """An operator's kernel: its name, layers and distribution (for networks), window (for ranks)."""

    kind: cpu.SmallKind
    layers: Tensor | None = None
    cauchy: bool = False
    window: float = 1.0

    def __call__(self, x: Tensor, k: int, temperature: float, grad: Tensor | None = None) -> Tensor | None:
        """The weights or, for a gradient of these, that of x; None where the scores are not ordinary."""
        return cpu.small_rows(
            self.kind,
            x,
            k,
            temperature,
            grad,
            layers=self.layers,
            cauchy=self.cauchy,
            window=self.window,
        )


def small_weights(
    kernel: SmallKernel,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    portable: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """The weights, or None where the kernel cannot be used; ``portable`` computes them with a graph."""
    if mask is not None or type(k) is not int or type(temperature) is not float or not is_plain(scores):
        return None
    shape = scores.shape
    if not shape or (dim != -1 and dim != len(shape) - 1) or scores.dtype not in _DTYPES:
        return None
    n = shape[-1]
    if not (0 < k < n <= MOST and scores.numel() * k <= _WORK and _LEAST < temperature < 1 / _LEAST):
        return None
    if native() is None:
        return None
    if scores.requires_grad and torch.is_grad_enabled():
        return cast("Tensor | None", _apply(scores, k, temperature, kernel, portable))
    return kernel(scores, k, temperature)


def small_matrix(
    kernel: SmallKernel,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Tensor | None:
    """The rows (…, k, n) if no gradient is needed, as in inference; otherwise None.

    The temperature may be a tensor (…) like the scores without the last dimension; the window equals it.
    """
    shape = scores.shape
    tensor = isinstance(temperature, Tensor)
    if mask is not None or not (is_plain(scores, temperature) if tensor else is_plain(scores)):
        return None
    if not shape or (dim != -1 and dim != len(shape) - 1) or scores.dtype not in _DTYPES:
        return None
    n = shape[-1]
    if not (0 < k < n <= MOST and scores.numel() * k <= _WORK) or native() is None:
        return None
    if torch.is_grad_enabled() and (scores.requires_grad or (tensor and temperature.requires_grad)):
        return None
    if tensor:
        low, high = temperature.aminmax()
        if temperature.shape != shape[:-1] or not (low.item() > _LEAST and high.item() < 1 / _LEAST):
            return None
        temperature = temperature.double().contiguous()
    elif type(temperature) is not float or not _LEAST < temperature < 1 / _LEAST:
        return None
    return cpu.small_rows(kernel.kind, scores, k, temperature, window=temperature, matrix=True)


class _SmallRows(torch.autograd.Function):
    """(scores, k, temperature, kernel, portable) → weights, or None; eager and reverse mode only."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        k: int,
        temperature: float,
        kernel: SmallKernel,
        portable: Callable[[Tensor], Tensor],
    ) -> Tensor | None:
        ctx.save_for_backward(x)
        ctx.numbers, ctx.kernel, ctx.portable = (k, temperature), kernel, portable
        return kernel(x, k, temperature)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        (grad,), kernel = grads, ctx.kernel
        out = None
        if not torch.is_grad_enabled() and is_plain(grad):
            out = kernel(x, *ctx.numbers, grad)
        if out is None:
            out = _portable_gradient(ctx.portable, x, grad)
        return out, None, None, None, None


def _portable_gradient(portable: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Tensor:
    """With a graph where one is recorded, and also of a batch of gradients."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if again else x.detach().requires_grad_()
        (out,) = torch.autograd.grad(portable(x), x, grad, create_graph=again)
    return out


_apply = plain_apply(_SmallRows)
