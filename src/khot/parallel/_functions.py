r"""The threshold family over shards as a function of autograd: one exchange in the backward pass.

With w = F′ and the mean m = Σwg/Σw of the incoming gradient g, over the whole row,

    ∂L/∂x = w (g − m)/τ,   ∂L/∂k = m,   ∂L/∂τ = −Σ z w (g − m)/τ   (``khot.relaxations.threshold._jacobian``)

so that Σw, Σwg, Σzw and Σzwg are all that has to be known of the other shards. Where slopes vanish, ∂L/∂k is
a
limit: half of it is shared among those above the gap and half among those below, each by exp(−its distance
from the gap/τ), for both gates with exponential tails (``_budget_shares.py``); and +inf that share k have 1/m
each.

L is the sum of what all processes start their backward pass from. k and the temperature are the same number
in all processes, and each process gets the whole of their gradient.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from khot.parallel._group import Group
from khot.parallel._shards import Shards
from khot.parallel._solver import Threshold, blocks, distances, solve
from khot.relaxations._arguments import compute_dtype
from khot.relaxations.threshold._gates import Gate

__all__ = ["gated_shards"]


def gated_shards(gate: Gate, shards: Shards, group: Group) -> Tensor:
    """The weights (rows, here) of this process's part."""
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
        return _weights(gate, wide, temperature, at).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, k, temperature, *rest = ctx.saved_tensors
        gate, group, at = ctx.gate, ctx.group, Threshold(*rest)
        wide = x.to(compute_dtype(x))
        grad = grad.to(wide.dtype)
        learns_k = ctx.needs_input_grad[1]
        sums = torch.zeros(x.shape[0], 9 if learns_k else 4, dtype=torch.float64, device=x.device)
        for rows, parts in blocks(*x.shape):
            here, tau = _of_rows(at, rows), temperature[rows]
            for columns in parts:
                mine, g = wide[rows, columns], grad[rows, columns]
                z, w = _slopes(gate, mine, tau, here)
                wg = w * torch.where(w > 0, g, 0)
                terms = [w, wg, z * w, z * wg] + (_limits(mine, g, tau, here) if learns_k else [])
                sums[rows] += torch.stack([term.sum(-1) for term in terms], -1)
        group.total(sums)
        w_sum, wg_sum, zw_sum, zwg_sum = sums[:, :4].unsqueeze(1).unbind(-1)
        mean = wg_sum / w_sum.clamp_min(torch.finfo(wide.dtype).tiny)
        grad_k = _gradient_in_k(gate, sums, mean, w_sum, k, at).to(k.dtype) if learns_k else None
        grad_t = (-(zwg_sum - mean * zw_sum) / temperature).to(temperature.dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(wide)
            mean = mean.to(wide.dtype)
            for rows, parts in blocks(*x.shape):
                here, tau, centre = _of_rows(at, rows), temperature[rows], mean[rows]
                for columns in parts:
                    g = grad[rows, columns]
                    w = _slopes(gate, wide[rows, columns], tau, here)[1]
                    grad_x[rows, columns] = w * (torch.where(w > 0, g, 0) - centre) / tau
            grad_x = grad_x.to(x.dtype)
        return grad_x, grad_k, grad_t, None, None, None


def _weights(gate: Gate, x: Tensor, temperature: Tensor, at: Threshold) -> Tensor:
    y = torch.empty_like(x)
    all_open = bool(at.is_open.all())
    for rows, parts in blocks(*x.shape):
        here, half = _of_rows(at, rows), temperature[rows] * 0.5
        for columns in parts:
            mine = x[rows, columns]
            # In an open row an infinite score is as far as any can be: its weight is 0 or 1.
            a = (mine * 0.5).sub_(here.anchor * 0.5).div_(half).clamp_(-gate.far, gate.far)
            found = gate.weights(a.add_(here.offset).sub_(here.fine))
            if not all_open:
                finite = torch.where(here.is_open, found, here.rest)
                found = torch.where(mine == math.inf, here.sure, torch.where(mine == -math.inf, 0, finite))
                found = torch.where(here.invalid, math.nan, found)
            y[rows, columns] = found
    return y


def _slopes(gate: Gate, x: Tensor, temperature: Tensor, at: Threshold) -> tuple[Tensor, Tensor]:
    """z and F′(z + e), 0 where no score moves the weight."""
    z = distances(gate, x, temperature, at)
    return z, torch.where(at.is_open & x.isfinite(), gate.slope(gate.state(z + at.offset - at.fine)), 0)


def _limits(x: Tensor, g: Tensor, temperature: Tensor, at: Threshold) -> list[Tensor]:
    """The terms of ∂L/∂k where slopes vanish: above the gap and below it, with and without g; and at +inf."""
    finite = x.isfinite()
    above, below = finite & (x >= at.anchor), finite & (x <= at.next_best)
    up = torch.where(above, torch.exp(-(x / 2 - at.anchor / 2) / temperature * 2), 0)
    down = torch.where(below, torch.exp(-(at.next_best / 2 - x / 2) / temperature * 2), 0)
    return [
        up,
        torch.where(up > 0, up * g, 0),
        down,
        torch.where(down > 0, down * g, 0),
        torch.where(x == math.inf, g, 0),
    ]


def _gradient_in_k(gate: Gate, sums: Tensor, mean: Tensor, w_sum: Tensor, k: Tensor, at: Threshold) -> Tensor:
    up, up_g, down, down_g, sure_g = sums[:, 4:].unsqueeze(1).unbind(-1)
    vanishing = w_sum < math.sqrt(torch.finfo(k.dtype).tiny)
    crowded = vanishing & ~at.is_open & (at.rest == 0) & (at.n_sure > 0)
    grad = torch.where(crowded, sure_g / at.n_sure.clamp_min(1), mean)
    if gate.steepness is None:
        return grad
    hard = vanishing & at.is_open & (k == k.ceil()) & (at.anchor > at.next_best)
    return torch.where(hard, (up_g / up.clamp_min(1e-300) + down_g / down.clamp_min(1e-300)) / 2, grad)


def _of_rows(at: Threshold, rows: slice) -> Threshold:
    return Threshold(*(each[rows] for each in at))
