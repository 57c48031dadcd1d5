"""What all operators of the threshold family share: one call, one Jacobian.

    yᵢ = F((xᵢ + c)/τ),   c such that Σy = k,   F a gate (see ``_gates.py``).

With w = F′((x + c)/τ) and W = Σw:

    ∂y/∂x = (diag(w) − w wᵀ/W)/τ,   ∂y/∂k = w/W,   ∂y/∂τ = −(∂y/∂x) x/τ.

The Jacobian is symmetric, so one product serves backward and forward mode. All of it is a function of the
gate's *state*, which is saved (and x, if the temperature or k has a gradient). The state is a second output
of the operation, with its own derivatives, so that all orders are right.

A weight that is settled (its score is infinite, k = 0, or k or fewer are allowed) has w = 0: no score moves
it. If W = 0 the derivatives in x and τ are 0, and ∂y/∂k, a ratio, is its limit: see ``_budget_shares.py``.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import inside_a_transform, is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import (
    Number,
    Rows,
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
from khot.relaxations._linearised import motion, must_linearise
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._budget_shares import budget_shares
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._solver import solve

__all__ = ["gated_topk", "gradient_anew", "weights_gradient"]


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
        y = _compiled(name, gate, scores, k, temperature, dim, mask)
    if y is None:
        rows = as_rows(name, scores, k, temperature, dim, mask)
        if must_linearise():
            weights = _linearised(gate, rows)
        else:
            function = _Gated if torch.compiler.is_compiling() else _GatedForwardMode
            weights = cast("tuple[Tensor, Tensor]", function.apply(*rows, gate))[0]  # pyright: ignore[reportUnknownMemberType]
        y = weights.movedim(-1, dim)
    return straight_through(y, hard_topk(scores, k, dim=dim, mask=mask)) if hard else y


def weights_gradient(
    gate: Gate,
    x: Tensor,
    k: float,
    temperature: Tensor | float,
    mask: Tensor | None,
    grad: Tensor,
    learns_temperature: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradients in x and in the temperature, for one (…, n) in the weights, which are computed again.

    For what has kept no dense row, by the kernels: ``x`` is float32 or float64. It is differentiable itself.
    """
    if torch.compiler.is_compiling():
        budget, t_rows = (operations.as_tensor(value, x.dtype) for value in (k, temperature))
        state = operations.gated_topk(gate.kernel, x, budget, t_rows, mask)[1]
    else:
        state = cast("tuple[Tensor, Tensor]", _NativeGated.apply(x, k, temperature, mask, gate))[1]  # pyright: ignore[reportUnknownMemberType]
    product = _backward_product(gate, state, (grad, None), temperature)
    assert product is not None
    if not learns_temperature:
        return product[0], None
    scores = _centred_scores(x, gate.slope(state), temperature)
    return product[0], -(scores * product[0]).sum(-1, keepdim=True)


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


def _compiled(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Tensor | None:
    """The weights by the kernel as an operation of a compiled graph, or None where that cannot be.

    Little is done beside it: whatever else there is, Inductor would have to compile.
    """
    if gate.kernel is None or not operations.taken() or must_linearise():
        return None
    last = position(name, scores, dim)
    dtype = compute_dtype(scores)
    if not operations.taken(rows := scores.to(dtype).movedim(last, -1)):
        return None
    check_budget(name, scores, k, last)
    check_temperature(name, temperature)
    if mask is not None:
        check_mask(name, scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    k_rows, t_rows = (
        per_row(name, argument, scores, value, last)
        if isinstance(value, Tensor) and (value.requires_grad or value.dim())
        else operations.as_tensor(value, dtype)
        for argument, value in (("k", k), ("temperature", within_range(temperature, dtype)))
    )
    y = cast("tuple[Tensor, Tensor]", _CompiledGated.apply(rows, k_rows, t_rows, mask, gate))[0]  # pyright: ignore[reportUnknownMemberType]
    return y.to(scores.dtype).movedim(-1, last)


def _portable(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, order: int | None
) -> tuple[Tensor, Tensor]:
    """Weights (dtype of x) and state (dtype of computation), in aten operations only."""
    a, settled, fixed = solve(gate, x.to(compute_dtype(x)), k, temperature, order)
    y = torch.where(settled, fixed, gate.weights(a))
    return y.to(x.dtype), torch.where(settled, gate.still, gate.state(a))


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
    if (
        gate.kernel is not None
        and grad_y is not None
        and grad_state is None
        and operations.taken(state, grad_y)
    ):
        return operations.gate_jacobian(
            state, grad_y, operations.as_tensor(temperature, state.dtype), gate.kernel
        )
    slope = gate.slope(state)
    moves = slope > 0
    by_shift = torch.zeros_like(state)  # the gradient in (x + c)/τ
    if grad_y is not None:
        by_shift = torch.where(moves, slope * torch.where(moves, grad_y, 0), 0)
    if grad_state is not None:
        by_shift = by_shift + gate.state_slope(state, slope) * torch.where(moves, grad_state, 0)
    grad_k = by_shift.sum(-1, keepdim=True) / _total(slope)
    return (by_shift - slope * grad_k) / temperature, grad_k


def _centred_scores(x: Tensor, slope: Tensor, temperature: Tensor | float) -> Tensor:
    """Scores in units of τ, relative to the one that moves most; 0 where the weight cannot move.

    Any constant will do for the derivative in the temperature; this one is near those that count, so that a
    score far away, with next to no slope, does not cost them their digits.
    """
    moving = (slope != 0) & x.isfinite()
    centre = x.detach().gather(-1, torch.where(moving, slope, -1).argmax(-1, keepdim=True))
    apart = torch.where(moving, x, 0) / 2 - torch.where(moving, centre, 0) / 2  # cannot overflow
    return apart / temperature * 2


def _needed(ctx: Any, x: Tensor, k: Tensor | float) -> tuple[Tensor | None, Tensor | None]:
    """What `_gradients` needs of x and k, inputs 0 and 1; the temperature is input 2."""
    learns_k, learns_temperature = ctx.needs_input_grad[1:3]
    return x if learns_k or learns_temperature else None, k if learns_k and isinstance(k, Tensor) else None


def _gradients(
    ctx: Any,
    state: Tensor,
    temperature: Tensor | float,
    x: Tensor | None,
    k: Tensor | None,
    grads: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients in x, k and the temperature, as far as they are needed, and None for two more inputs."""
    gate: Gate = ctx.gate
    product = _backward_product(gate, state, grads, temperature)
    if product is None:
        return (None,) * 5
    grad_x, grad_k = product
    grad_temperature = None
    if x is not None:
        x, slope = x.to(state.dtype), gate.slope(state)
        if ctx.needs_input_grad[2]:
            scores = _centred_scores(x, slope, temperature)
            grad_temperature = -(scores * grad_x).sum(-1, keepdim=True)
        shares = None if k is None else budget_shares(gate, slope, x, k, temperature)
        if shares is not None:
            rows, share = shares
            grad_y, grad_state = (torch.zeros_like(state) if g is None else g.to(state.dtype) for g in grads)
            # Where slopes vanish, the state of a finite score moves as its weight does; no other moves.
            moved = torch.where(share > 0, grad_y + torch.where(x.isfinite(), grad_state, 0), 0)
            grad_k = torch.where(rows, (share * moved).sum(-1, keepdim=True), grad_k)
    return grad_x.to(ctx.dtype), grad_k if ctx.needs_input_grad[1] else None, grad_temperature, None, None


def gradient_anew(gate: Gate, x: Tensor, k: float, temperature: float, grad: Tensor) -> Tensor:
    """The gradient in x (…, n) of a call of which no state was saved, with a graph if there is to be one."""
    if inside_a_transform():
        function, inputs = _Gated, (*as_rows("gradient", x, k, temperature, -1, None), gate)
    else:
        function, inputs = _NativeGated, (x, k, temperature, None, gate)
    state = cast("tuple[Tensor, Tensor]", function.apply(*inputs))[1]  # pyright: ignore[reportUnknownMemberType]
    product = _backward_product(gate, state, (grad, None), temperature)
    assert product is not None
    return product[0]


def _tangents(
    gate: Gate,
    state: Tensor,
    x: Tensor,
    k: Tensor,
    temperature: Tensor,
    dx: Tensor | None,
    dk: Tensor | None,
    dt: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """How weights and state move with scores, budget and temperature."""
    slope = gate.slope(state)
    moves = slope > 0
    v = torch.zeros_like(state) if dx is None else torch.where(moves, dx.to(state.dtype), 0)
    if dt is not None:
        v = v - _centred_scores(x, slope, temperature) * dt
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


def _linearised(gate: Gate, rows: Rows) -> Tensor:
    """Weights (…, n) with first derivatives in every mode, of aten operations alone."""
    x, k, temperature, n_sorted = rows
    still = x.detach(), k.detach(), temperature.detach()
    y, state = _portable(gate, *still, n_sorted)
    moved = [motion(t.to(state.dtype)) for t in (x, k, temperature)]
    return y + _tangents(gate, state, still[0].to(state.dtype), *still[1:], *moved)[0].to(y.dtype)


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
        ctx.save_for_backward(state, learned, *_needed(ctx, x, k), mask if ctx.needs_input_grad[1] else None)
        return y.to(x.dtype), state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, learned, x, k, mask = ctx.saved_tensors
        temperature = ctx.temperature if learned is None else learned
        if mask is not None:
            x = x.masked_fill(~mask, -torch.inf)
        return _gradients(ctx, state, temperature, x, k, grads)


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
        x, k, temperature, _, gate = inputs
        _, state = output
        ctx.set_materialize_grads(False)
        ctx.dtype, ctx.gate = x.dtype, gate
        ctx.save_for_backward(state, temperature, *_needed(ctx, x, k))
        ctx.save_for_forward(state, temperature, x, k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, temperature, x, k = ctx.saved_tensors
        return _gradients(ctx, state, temperature, x, k, grads)


class _CompiledGated(_Gated):
    """(x, k, temperature, mask, gate) → (weights, state), by operations in a compiled graph."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        return operations.gated_topk(gate.kernel, x, k, temperature, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, temperature, mask, gate = inputs
        _, state = output
        ctx.mark_non_differentiable(state)
        ctx.dtype, ctx.gate = x.dtype, gate
        ctx.save_for_backward(
            state, temperature, *_needed(ctx, x, k), mask if ctx.needs_input_grad[1] else None
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, temperature, x, k, mask = ctx.saved_tensors
        if mask is not None:
            x = x.masked_fill(~mask, -torch.inf)
        return _gradients(ctx, state, temperature, x, k, (grads[0], None))


class _GatedForwardMode(_Gated):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, Tensor]:
        dx, dk, dt, _, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        state, temperature, x, k = ctx.saved_tensors
        dy, dstate = _tangents(ctx.gate, state, x.to(state.dtype), k, temperature, dx, dk, dt)
        return dy.to(ctx.dtype), dstate
