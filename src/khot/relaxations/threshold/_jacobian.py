"""The Jacobian of the threshold family, from the gate's state.

    yᵢ = F((xᵢ + c)/τ),   c such that Σy = k,   F a gate (see ``_gates.py``).

With w = F′((x + c)/τ) and W = Σw:

    ∂y/∂x = (diag(w) − w wᵀ/W)/τ,   ∂y/∂k = w/W,   ∂y/∂τ = −(∂y/∂x) x/τ.

The Jacobian is symmetric, so one product serves backward and forward mode. Everything is a function of the
gate's *state*, and of x if the temperature or k needs a gradient.

A settled weight (its score is infinite, k = 0, or k or fewer are allowed) has w = 0: no score changes it. If
W = 0 the derivatives in x and τ are 0, and the ratio ∂y/∂k is replaced by its limit: see
``_budget_shares.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels import cpu, operations, triton
from khot.relaxations.threshold._budget_shares import budget_shares
from khot.relaxations.threshold._gates import Gate

__all__ = ["Gradients", "backward_product", "centred_scores", "gradients", "tangents"]

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def _total(slope: Tensor) -> Tensor:
    return slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)


def backward_product(
    gate: Gate, state: Tensor, grads: tuple[Tensor | None, ...], temperature: Tensor | float
) -> tuple[Tensor, Tensor] | None:
    """The gradients in x and in k, from those in the weights and in the state."""
    grad_y, grad_state = (None if g is None else g.to(state.dtype) for g in grads)
    if grad_y is None and grad_state is None:
        return None
    kernel = None if grad_state is not None or torch.is_grad_enabled() else gate.kernel
    if kernel is not None and grad_y is not None and cpu.usable(state, grad_y):
        return cpu.gate_jacobian(state, grad_y, temperature, kernel, gate.norm)
    if (
        gate.kernel is not None
        and grad_y is not None
        and grad_state is None
        and (operations.taken(state, grad_y) or _taken_on_gpu(gate, state, grad_y))
    ):
        return operations.gate_jacobian(
            state,
            grad_y,
            operations.as_tensor(temperature, state.dtype, state.device),
            gate.kernel,
            gate.norm,
        )
    slope = gate.slope(state)
    moves = slope > 0
    total = _total(slope)
    grad_k = torch.zeros_like(total)
    grad_shift = torch.zeros_like(state)  # the gradient in (x + c)/τ
    if grad_y is not None:
        moved = torch.where(moves, grad_y, 0)
        # Not slope · grad summed, over the total: where slopes are tiny, its second derivatives overflow.
        grad_k = (slope / total * moved).sum(-1, keepdim=True)
        grad_shift = torch.where(moves, slope * (moved - grad_k), 0)
    if grad_state is not None:
        by_state = gate.state_slope(state, slope) * torch.where(moves, grad_state, 0)
        grad_k_by_state = by_state.sum(-1, keepdim=True) / total
        grad_shift = grad_shift + by_state - slope * grad_k_by_state
        grad_k = grad_k + grad_k_by_state
    return grad_shift / temperature, grad_k


def _taken_on_gpu(gate: Gate, *tensors: Tensor) -> bool:
    twice = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return not twice and triton.serves(gate.kernel, gate.norm) and operations.taken_on_gpu(*tensors)


def centred_scores(x: Tensor, slope: Tensor, temperature: Tensor | float) -> Tensor:
    """Scores in units of τ, relative to the one with the largest slope; 0 where the weight cannot change.

    The derivative in the temperature does not depend on this reference. One near the scores with large slopes
    avoids losing digits to scores that are far away and have almost no slope.
    """
    moving = (slope != 0) & x.isfinite()
    centre = x.detach().gather(-1, torch.where(moving, slope, -1).argmax(-1, keepdim=True))
    apart = torch.where(moving, x, 0) / 2 - torch.where(moving, centre, 0) / 2  # cannot overflow
    return apart / temperature * 2


def gradients(
    gate: Gate,
    state: Tensor,
    temperature: Tensor | float,
    x: Tensor | None,
    k: Tensor | None,
    grads: tuple[Tensor | None, ...],
    learns_temperature: bool,
) -> Gradients:
    """The gradients in x, k and the temperature, from those in the weights and in the state.

    ``x`` is needed for the gradients in k and in the temperature, ``k`` for its own gradient; without them
    these are None or the plain ratio.
    """
    product = backward_product(gate, state, grads, temperature)
    if product is None:
        return None, None, None
    grad_x, grad_k = product
    grad_temperature = None
    if x is not None:
        x, slope = x.to(state.dtype), gate.slope(state)
        if learns_temperature:
            scores = centred_scores(x, slope, temperature)
            grad_temperature = -(scores * grad_x).sum(-1, keepdim=True)
        shares = None if k is None else budget_shares(gate, slope, x, k, temperature)
        if shares is not None:
            rows, share = shares
            grad_y, grad_state = (torch.zeros_like(state) if g is None else g.to(state.dtype) for g in grads)
            # Where slopes vanish, the state of a finite score moves as its weight does; no other moves.
            moved = torch.where(share > 0, grad_y + torch.where(x.isfinite(), grad_state, 0), 0)
            grad_k = torch.where(rows, (share * moved).sum(-1, keepdim=True), grad_k)
    return grad_x, grad_k, grad_temperature


def tangents(
    gate: Gate,
    state: Tensor,
    x: Tensor,
    k: Tensor,
    temperature: Tensor,
    dx: Tensor | None,
    dk: Tensor | None,
    dt: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The tangents of weights and state, from those of scores, budget and temperature."""
    slope = gate.slope(state)
    moves = slope > 0
    v = torch.zeros_like(state) if dx is None else torch.where(moves, dx.to(state.dtype), 0)
    if dt is not None:
        v = v - centred_scores(x, slope, temperature) * dt
    v = v / temperature
    total = _total(slope)
    shift = v - (slope * v).sum(-1, keepdim=True) / total
    shares = None if dk is None else budget_shares(gate, slope, x, k, temperature)
    by_share = torch.zeros_like(state)
    if dk is not None:
        by_slope = dk / total
        if shares is not None:
            rows, share = shares
            by_slope = torch.where(rows, 0, by_slope)
            by_share = torch.where(rows, share * dk, 0)
        shift = shift + by_slope
    shift = torch.where(moves, shift, 0)
    state_moves = gate.state_slope(state, slope) * shift + torch.where(x.isfinite(), by_share, 0)
    return slope * shift + by_share, state_moves
