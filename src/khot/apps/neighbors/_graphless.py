"""Checkpointing: keep only the inputs of a part, and compute it again in the backward pass.

Unlike ``torch.utils.checkpoint``, this builds no graph at all in the forward pass. So operators with their
own autograd functions keep no state, and ``torch.autograd.grad`` works. The gradient is not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["graphless"]

Part = Callable[..., tuple[Tensor, Tensor]]


def graphless(part: Part, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """``part(*inputs)``: a tensor with a gradient in the inputs, and one without."""
    return cast("tuple[Tensor, Tensor]", _Graphless.apply(part, *inputs))  # pyright: ignore[reportUnknownMemberType]


class _Graphless(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Part, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.part = part
        ctx.save_for_backward(*inputs)
        losses, other = part(*inputs)
        ctx.mark_non_differentiable(other)
        return losses, other

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        needed: tuple[bool, ...] = ctx.needs_input_grad[1:]
        inputs = [
            t.detach().requires_grad_(wanted) for t, wanted in zip(ctx.saved_tensors, needed, strict=True)
        ]
        with torch.enable_grad():
            losses, _ = ctx.part(*inputs)
        leaves = [t for t in inputs if t.requires_grad]
        found = iter(torch.autograd.grad(losses, leaves, gradient, allow_unused=True))
        return None, *(next(found) if wanted else None for wanted in needed)
