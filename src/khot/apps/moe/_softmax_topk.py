"""The k largest logits and their softmax, as in most routers, without a dense row of weights."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.relaxations.entries import topk_entries

__all__ = ["softmax_at", "softmax_topk"]


def softmax_topk(logits: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Weights and indices (T, k) of the largest of (T, experts): softmax over all experts, or over the k."""
    if k <= cpu.ROUTER_MOST and cpu.usable(logits):
        if torch.is_grad_enabled() and logits.requires_grad:
            return cast("Any", _SoftmaxTopK).apply(logits, k, renormalise)
        indices, weights, _ = cpu.router_topk(logits, k, renormalise)
        return weights, indices
    entries = topk_entries(logits, k, hard=True)
    return softmax_at(logits, entries.values, renormalise), entries.indices


def softmax_at(logits: Tensor, chosen: Tensor, renormalise: bool) -> Tensor:
    """The softmax at the chosen logits, normalised over all or over the chosen ones; the sum cannot be 0."""
    return chosen.softmax(-1) if renormalise else (chosen - logits.logsumexp(-1, keepdim=True)).exp()


class _SoftmaxTopK(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
        indices, weights, sums = cpu.router_topk(logits, k, renormalise)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)
        ctx.renormalise = renormalise
        ctx.save_for_backward(logits, indices, weights, sums)
        return weights, indices

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        logits, indices, weights, sums = ctx.saved_tensors
        (grad, _) = grads
        if grad is None:
            return None, None, None
        if torch.is_grad_enabled() or not cpu.usable(logits, grad):  # derivatives of the gradient are wanted
            with torch.enable_grad():
                again = softmax_at(logits, logits.gather(-1, indices), ctx.renormalise)
                (result,) = cast("Any", torch.autograd).grad(again, logits, grad, create_graph=True)
            return result, None, None
        return cpu.router_gradient(logits, indices, weights, sums, grad, ctx.renormalise), None, None
