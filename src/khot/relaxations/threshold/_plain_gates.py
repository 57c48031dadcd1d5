"""A fast path for the most common call of a gate: plain scores, numbers for k and τ, the last dimension.

It is for the other gates what ``_plain_sigmoid.py`` is for sigmoid top-k. Besides the state it saves the
scores, to compute higher derivatives from; so it is used for small inputs only, where memory does not matter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import Number
from khot.relaxations._plain_apply import plain_apply
from khot.relaxations.threshold._functions import weights_gradient
from khot.relaxations.threshold._gates import Gate

__all__ = ["plain_gated"]

_SMALL = 1 << 15  # entries


def plain_gated(
    gate: Gate, scores: Tensor, k: Number | Tensor, temperature: Number | Tensor, dim: int
) -> Tensor | None:
    """The weights, or None for any other case, errors included: the caller then takes the usual path."""
    if not is_plain(scores) or type(k) is not int or type(temperature) is not float or type(dim) is not int:
        return None
    shape = scores.shape
    if gate.kernel is None or not shape or (dim != -1 and dim != len(shape) - 1) or scores.numel() > _SMALL:
        return None
    if not (0 <= k <= shape[-1] and 1e-30 < temperature < 1e30) or native() is None:
        return None
    if scores.dtype not in (torch.float32, torch.float64):
        return None
    if scores.requires_grad and is_grad_enabled():
        return _apply(scores, float(k), temperature, gate)
    return cpu.gated_topk(gate.kernel, scores, float(k), temperature, norm=gate.norm)[0]


class _PlainGated(torch.autograd.Function):
    """(x, k, temperature, gate) → weights, by the compiled kernels; eager and reverse mode only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float, temperature: float, gate: Gate) -> Tensor:
        assert gate.kernel is not None
        y, state = cpu.gated_topk(gate.kernel, x, k, temperature, norm=gate.norm, state=True)
        ctx.save_for_backward(x, state)
        ctx.numbers = k, temperature, gate
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, state = ctx.saved_tensors
        k, temperature, gate = ctx.numbers
        (grad,) = grads
        if not is_grad_enabled() and is_plain(grad) and grad.dtype == state.dtype:
            out = cpu.gate_jacobian(state, grad, temperature, gate.kernel, gate.norm)[0]
        else:  # derivatives of derivatives, or a batch of gradients inside vmap
            out = weights_gradient(gate, x, k, temperature, None, grad)[0]
        return out, None, None, None


_apply = plain_apply(_PlainGated)
