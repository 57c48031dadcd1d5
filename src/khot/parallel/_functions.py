r"""The threshold family over shards as an autograd function, with one message in the backward pass.

With w = F′ and the mean m = Σwg/Σw of the incoming gradient g over the whole row,

    ∂L/∂x = w (g − m)/τ,   ∂L/∂k = m,   ∂L/∂τ = −Σ z w (g − m)/τ   (``khot.relaxations.threshold._jacobian``)

so a process needs only Σw, Σwg, Σzw and Σzwg of the other shards. If all slopes vanish, ∂L/∂k is a limit and
takes one more message: half of it goes to the scores above the gap and half to those below, each in
proportion to exp(−distance from the gap/τ), for both gates with exponential tails (``_budget_shares.py``).
If m scores at +inf share k, each gets 1/m.

L is the sum of the losses of all processes. k and the temperature are the same in all processes, and each
process gets their whole gradient.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from khot.parallel._group import Group
from khot.parallel._passes import KnownRows
from khot.parallel._shards import Shards
from khot.parallel._solver import Threshold, solve
from khot.relaxations._arguments import compute_dtype
from khot.relaxations.threshold._gates import Gate

__all__ = ["gated_shards"]


def gated_shards(gate: Gate, shards: Shards, group: Group) -> Tensor:
    """The weights (rows, here) of this process's shard."""
    return cast(
        "Tensor",
        _Gated.apply(shards.scores, shards.k, shards.temperature, gate, shards.n, group),  # pyright: ignore[reportUnknownMemberType]
    )


class _Gated(torch.autograd.Function):
    """(x, k, temperature, gate, n, group) → weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor, temperature: Tensor, gate: Gate, n: int, group: Group
    ) -> Tensor:
        wide = x.to(compute_dtype(x))
        at = solve(gate, wide, k, temperature, n, group)
        ctx.gate, ctx.group = gate, group
        ctx.save_for_backward(x, k, temperature, *at)
        return KnownRows(gate, wide, temperature, at).weights().to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, k, temperature, *rest = ctx.saved_tensors
        rows = KnownRows(ctx.gate, x.to(compute_dtype(x)), temperature, Threshold(*rest))
        grad = grad.to(rows.x.dtype)
        sums = ctx.group.total(rows.sums(grad))
        w_sum, wg_sum, zw_sum, zwg_sum = sums.unsqueeze(1).unbind(-1)
        mean = wg_sum / w_sum.clamp_min(torch.finfo(rows.x.dtype).tiny)
        grad_x = grad_k = None
        if ctx.needs_input_grad[0]:
            grad_x = rows.product(grad, mean).to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_k = _gradient_in_k(rows, grad, mean, w_sum, k, ctx.group).to(k.dtype)
        grad_t = (-(zwg_sum - mean * zw_sum) / temperature).to(temperature.dtype)
        return grad_x, grad_k, grad_t, None, None, None


def _gradient_in_k(
    rows: KnownRows, grad: Tensor, mean: Tensor, w_sum: Tensor, k: Tensor, group: Group
) -> Tensor:
    at = rows.at
    vanishing = w_sum < math.sqrt(torch.finfo(k.dtype).tiny)
    if not bool(vanishing.any()):  # by the same sums: the same in all processes
        return mean
    limits = group.total(rows.limits(grad))
    up, up_g, down, down_g, sure_g = limits.unsqueeze(1).unbind(-1)
    crowded = vanishing & ~at.is_open & (at.rest == 0) & (at.n_sure > 0)
    grad_k = torch.where(crowded, sure_g / at.n_sure.clamp_min(1), mean)
    if rows.gate.steepness is None:
        return grad_k
    hard = vanishing & at.is_open & (k == k.ceil()) & (at.anchor > at.next_best)
    shared = (up_g / up.clamp_min(1e-300) + down_g / down.clamp_min(1e-300)) / 2
    return torch.where(hard, shared, grad_k)
