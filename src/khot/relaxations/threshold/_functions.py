"""The threshold family as autograd functions: by the kernels, in torch operations, in a compiled graph.

Each returns the weights and the gate's *state*, from which all derivatives are computed (``_jacobian.py``).
The state is saved for the backward pass, together with x if the temperature or k needs a gradient. The state
is an output with derivatives of its own, so that derivatives of all orders are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import inside_a_transform, is_plain
from khot.relaxations._arguments import Rows, as_rows, compute_dtype
from khot.relaxations._linearised import motion
from khot.relaxations.threshold._breakpoints import breakpoint_solve
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._jacobian import backward_product, centred_scores, gradients, tangents
from khot.relaxations.threshold._newton import newton_solve
from khot.relaxations.threshold._solver import solve

__all__ = ["compiled_gated", "linearised_gated", "native_gated", "portable_gated", "weights_gradient"]

Result = tuple[Tensor, Tensor]


def native_gated(
    gate: Gate, x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None
) -> Result:
    """Weights and state of rows (…, n) by the compiled kernels, in eager and reverse mode."""
    return cast("Result", _NativeGated.apply(x, k, temperature, mask, gate))  # pyright: ignore[reportUnknownMemberType]


def compiled_gated(gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None) -> Result:
    """Weights and state by the kernels as operations, in a compiled graph or on a GPU, in reverse mode."""
    return cast("Result", _CompiledGated.apply(x, k, temperature, mask, gate))  # pyright: ignore[reportUnknownMemberType]


def portable_gated(gate: Gate, rows: Rows) -> Result:
    """Weights and state in aten operations, in every mode."""
    function = _Gated if torch.compiler.is_compiling() else _GatedForwardMode
    return cast("Result", function.apply(*rows, gate))  # pyright: ignore[reportUnknownMemberType]


def linearised_gated(gate: Gate, rows: Rows) -> Tensor:
    """Weights (…, n) with first derivatives in every mode, using only aten operations."""
    x, k, temperature, n_sorted = rows
    still = x.detach(), k.detach(), temperature.detach()
    if gate.kernel is not None and operations.taken(still[0].to(compute_dtype(x)), constants=True):
        wide = (t.to(compute_dtype(x)) for t in still)
        y, state = operations.gated_topk(gate.kernel, *wide, None, gate.norm)
        y = y.to(x.dtype)
    else:
        y, state = _portable(gate, *still, n_sorted)
    moved = [motion(t.to(state.dtype)) for t in (x, k, temperature)]
    return y + tangents(gate, state, still[0].to(state.dtype), *still[1:], *moved)[0].to(y.dtype)


def weights_gradient(
    gate: Gate,
    x: Tensor,
    k: Tensor | float,
    temperature: Tensor | float,
    mask: Tensor | None,
    grad: Tensor,
    learns_temperature: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The gradients in x and in the temperature for a gradient (…, n) in the weights, which are recomputed.

    This is for callers that have kept no state. ``x`` is float32 or float64, k and the temperature are
    numbers or of shape (…, 1). The result is itself differentiable.
    """
    if torch.compiler.is_compiling():
        budget, t_rows = (operations.as_tensor(value, x.dtype) for value in (k, temperature))
        state = operations.gated_topk(gate.kernel, x, budget, t_rows, mask, gate.norm)[1]
    elif inside_a_transform():
        budget, t_rows = (t.squeeze(-1) if isinstance(t, Tensor) and t.dim() else t for t in (k, temperature))
        state = portable_gated(gate, as_rows("gradient", x, budget, t_rows, -1, mask))[1]
    else:
        state = native_gated(gate, x, k, temperature, mask)[1]
    product = backward_product(gate, state, (grad, None), temperature)
    assert product is not None
    if not learns_temperature:
        return product[0], None
    scores = centred_scores(x, gate.slope(state), temperature)
    return product[0], -(scores * product[0]).sum(-1, keepdim=True)


def _portable(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None
) -> tuple[Tensor, Tensor]:
    """Weights (dtype of x) and state (dtype of computation), in aten operations only.

    A NaN score makes the weights NaN in its whole row, whatever k is and also where entries are excluded.
    """
    wide = x.to(compute_dtype(x))
    in_few_operations = _in_few_operations(gate) if x.shape[-1] > 0 and not is_plain(wide) else None
    if in_few_operations is not None:
        y, state = in_few_operations(gate, wide, k, temperature, n_sorted)
        return y.to(x.dtype), state
    a, settled, fixed = solve(gate, wide, k, temperature, n_sorted)
    has_nan = wide.isnan().any(-1, keepdim=True)
    y = torch.where(has_nan, torch.nan, torch.where(settled, fixed, gate.weights(a)))
    state = torch.where(has_nan, torch.nan, torch.where(settled, gate.still, gate.state(a)))
    return y.to(x.dtype), state


def _in_few_operations(gate: Gate) -> Callable[..., Result] | None:
    """The solver for graphs, and for devices where each operation is a launch; None if the gate has none."""
    if gate.newton_steps is not None:
        return newton_solve
    return breakpoint_solve if gate.kernel == "sparse" and gate.norm == 2 else None


def _needed(ctx: Any, x: Tensor, k: Tensor | float) -> tuple[Tensor | None, Tensor | None]:
    """What the gradients need of x and k, inputs 0 and 1; the temperature is input 2."""
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
    of_k, of_temperature = ctx.needs_input_grad[1:3]
    grad_x, grad_k, grad_t = gradients(ctx.gate, state, temperature, x, k, grads, of_temperature)
    return None if grad_x is None else grad_x.to(ctx.dtype), grad_k if of_k else None, grad_t, None, None


class _NativeGated(torch.autograd.Function):
    """The same by the compiled kernels: k and temperature may be numbers; eager and reverse mode only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        assert gate.kernel is not None
        rows = x.to(compute_dtype(x))
        y, state = cpu.gated_topk(gate.kernel, rows, k, temperature, mask, norm=gate.norm, state=True)
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
    """(x, k, temperature, n_sorted, gate) → (weights, state)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        return _portable(gate, x, k, temperature, n_sorted)

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
    """(x, k, temperature, mask, gate) → (weights, state), by operations: in a compiled graph, or on a GPU.

    Eagerly the state has derivatives, so that those of the second order are right; a compiled graph has none.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, gate: Gate
    ) -> tuple[Tensor, Tensor]:
        return operations.gated_topk(gate.kernel, x, k, temperature, mask, gate.norm)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, k, temperature, mask, gate = inputs
        _, state = output
        ctx.compiled = torch.compiler.is_compiling()
        if ctx.compiled:
            ctx.mark_non_differentiable(state)
        else:
            ctx.set_materialize_grads(False)
        ctx.dtype, ctx.gate = x.dtype, gate
        ctx.save_for_backward(
            state, temperature, *_needed(ctx, x, k), mask if ctx.needs_input_grad[1] else None
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        state, temperature, x, k, mask = ctx.saved_tensors
        if mask is not None:
            x = x.masked_fill(~mask, -torch.inf)
        return _gradients(ctx, state, temperature, x, k, (grads[0], None) if ctx.compiled else grads)


class _GatedForwardMode(_Gated):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, Tensor]:
        dx, dk, dt, _, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        state, temperature, x, k = ctx.saved_tensors
        dy, dstate = tangents(ctx.gate, state, x.to(state.dtype), k, temperature, dx, dk, dt)
        return dy.to(ctx.dtype), dstate
