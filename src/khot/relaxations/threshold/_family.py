"""What all operators of the threshold family share: one call, one Jacobian.

    yᵢ = F((xᵢ + c)/τ),   c such that Σy = k,   F a gate (see ``_gates.py``).

With w = F′((x + c)/τ) and W = Σw:

    ∂y/∂x = (diag(w) − w wᵀ/W)/τ,   ∂y/∂k = w/W,   ∂y/∂τ = −(∂y/∂x) x/τ.

The Jacobian is symmetric, so one product serves backward and forward mode; if W = 0 every derivative is 0.
All of it is a function of the gate's *state*, which is saved (and x, if the temperature has a gradient). The
state is a second output of the operation, with its own derivatives, so that all orders are right.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import (
    Number,
    as_rows,
    check_budget,
    check_mask,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
    within_range,
)
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._solver import solve

__all__ = ["gated_topk"]


def gated_topk(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
) -> Tensor:
    """The weights of the operator called ``name``."""
    scores = directed(scores, largest)
    y = _native(name, gate, scores, k, temperature, dim, mask)
    if y is None:
        rows = as_rows(name, scores, k, temperature, dim, mask)
        function = _Gated if torch.compiler.is_compiling() else _GatedForwardMode
        weights, _ = cast("tuple[Tensor, Tensor]", function.apply(*rows, gate))  # pyright: ignore[reportUnknownMemberType]
        y = weights.movedim(-1, dim)
    return straight_through(y, hard_topk(scores, k, dim=dim, mask=mask)) if hard else y


def _native(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Tensor | None:
    """The weights by the compiled kernel, or None where that cannot be."""
    tensors = [t for t in (scores, k, temperature, mask) if isinstance(t, Tensor)]
    if gate.kernel is None or not is_plain(*tensors) or native() is None:
        return None
    last = position(name, scores, dim)
    check_budget(name, scores, k, last)
    check_temperature(name, temperature)
    dtype = compute_dtype(scores)
    temperature = within_range(temperature, dtype)
    if len(tensors) == 1:
        k_rows, t_rows = float(k), float(temperature)
    else:
        k_rows = per_row(name, "k", scores, k, last) if isinstance(k, Tensor) else float(k)
        t_rows = temperature
        if isinstance(temperature, Tensor):
            t_rows = per_row(name, "temperature", scores, temperature, last)
    if mask is not None:
        check_mask(name, scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    rows = scores if last == scores.dim() - 1 else scores.movedim(last, -1)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        if dtype == scores.dtype:
            y = cpu.gated_topk(gate.kernel, rows, k_rows, t_rows, mask)[0]
        else:
            y = cpu.gated_topk(gate.kernel, rows.to(dtype), k_rows, t_rows, mask)[0].to(scores.dtype)
        return y if rows is scores else y.movedim(-1, last)
    y = cast("tuple[Tensor, Tensor]", _NativeGated.apply(rows, k_rows, t_rows, mask, gate))[0]  # pyright: ignore[reportUnknownMemberType]
    return y if rows is scores else y.movedim(-1, last)


def _portable(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, order: int | None
) -> tuple[Tensor, Tensor]:
    """Weights (dtype of x) and state (dtype of computation), in aten operations only."""
    z, offset, settled, fixed = solve(gate, x.to(compute_dtype(x)), k, temperature, order)
    y = torch.where(settled, fixed, gate.weights(z + offset))
    state = torch.where(settled, gate.state_of_weights(fixed), gate.state(z + offset))
    return y.to(x.dtype), state


def _total(slope: Tensor) -> Tensor:
    return slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)


def _backward_product(
    gate: Gate, state: Tensor, grads: tuple[Tensor | None, ...], temperature: Tensor | float
) -> tuple[Tensor, Tensor] | None:
    """The gradients in x and in k, from those in the weights and in the state."""
    grad_y, grad_state = (None if g is None else g.to(state.dtype) for g in grads)
    if grad_y is None and grad_state is None:
        return None
    kernel = None if grad_state is not None or torch.is_grad_enabled() else gate.kernel
    if kernel is not None and grad_y is not None and cpu.usable(state, grad_y):
        return cpu.gate_jacobian(state, grad_y, temperature, kernel)
    slope = gate.slope(state)
    moves = slope > 0
    by_shift = torch.zeros_like(state)  # the gradient in (x + c)/τ
    if grad_y is not None:
        by_shift = torch.where(moves, slope * torch.where(moves, grad_y, 0), 0)
    if grad_state is not None:
        by_shift = by_shift + gate.state_slope(state, slope) * torch.where(moves, grad_state, 0)
    grad_k = by_shift.sum(-1, keepdim=True) / _total(slope)
    return (by_shift - slope * grad_k) / temperature, grad_k


def _centred_scores(x: Tensor, slope: Tensor) -> Tensor:
    """Scores relative to the largest that still moves; 0 where the weight cannot move.

    Any constant will do for the derivative in the temperature; this one cannot overflow.
    """
    moving = (slope != 0) & x.isfinite()
    centre = torch.where(moving, x, -torch.inf).amax(-1, keepdim=True).detach()
    return torch.where(moving, x - torch.where(centre.isfinite(), centre, 0), 0)


def _gradients(
    gate: Gate,
    state: Tensor,
    temperature: Tensor | float,
    x: Tensor | None,
    grads: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients in x, k and, if x was saved for it, the temperature."""
    product = _backward_product(gate, state, grads, temperature)
    if product is None:
        return None, None, None
    grad_x, grad_k = product
    if x is None:
        return grad_x, grad_k, None
    scores = _centred_scores(x.to(state.dtype), gate.slope(state))
    return grad_x, grad_k, -(scores * grad_x).sum(-1, keepdim=True) / temperature


class _NativeGated(torch.autograd.Function):
    """The same by the compiled kernels: k and temperature may be numbers; eager and reverse mode only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        assert gate.kernel is not None
        y, state = cpu.gated_topk(gate.kernel, x.to(compute_dtype(x)), k, temperature, mask, state=True)
        assert state is not None
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.gate = x.dtype, gate
        learned = temperature if isinstance(temperature, Tensor) else None
        ctx.temperature = None if isinstance(temperature, Tensor) else temperature
        ctx.save_for_backward(state, learned, x if ctx.needs_input_grad[2] else None)
        return y.to(x.dtype), state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, learned, x = ctx.saved_tensors
        temperature = ctx.temperature if learned is None else learned
        grad_x, grad_k, grad_temperature = _gradients(ctx.gate, state, temperature, x, grads)
        if not ctx.needs_input_grad[1]:
            grad_k = None
        return None if grad_x is None else grad_x.to(ctx.dtype), grad_k, grad_temperature, None, None


class _Gated(torch.autograd.Function):
    """(x, k, temperature, order, gate) → (weights, state)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, k: Tensor, temperature: Tensor, order: int | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        return _portable(gate, x, k, temperature, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, _, temperature, _, gate = inputs
        _, state = output
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.gate = x.dtype, gate
        learns_temperature = ctx.needs_input_grad[2]
        ctx.save_for_backward(state, temperature, x if learns_temperature else None)
        ctx.save_for_forward(state, temperature, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, temperature, x = ctx.saved_tensors
        grad_x, grad_k, grad_temperature = _gradients(ctx.gate, state, temperature, x, grads)
        return None if grad_x is None else grad_x.to(ctx.dtype), grad_k, grad_temperature, None, None


class _GatedForwardMode(_Gated):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, Tensor]:
        dx, dk, dt, _, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        state, temperature, x = ctx.saved_tensors
        gate: Gate = ctx.gate
        slope = gate.slope(state)
        moves = slope > 0
        v = torch.zeros_like(state) if dx is None else torch.where(moves, dx.to(state.dtype), 0)
        if dt is not None:
            v = v - _centred_scores(x.to(state.dtype), slope) * (dt / temperature)
        v = v / temperature
        total = _total(slope)
        shift = v - (slope * v).sum(-1, keepdim=True) / total
        if dk is not None:
            shift = shift + dk / total
        shift = torch.where(moves, shift, 0)
        return (slope * shift).to(ctx.dtype), gate.state_slope(state, slope) * shift
