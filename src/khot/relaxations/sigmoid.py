"""Sigmoid top-k: independent gates tied by one threshold.

    y = argmax ⟨x, π⟩ + τ Σᵢ H(πᵢ)  over  π ∈ [0, 1]ⁿ, Σπ = k,     H the binary entropy,
    yᵢ = σ((xᵢ + c)/τ),             c such that Σy = k.

With w = y(1 − y) and W = Σw:  ∂y/∂x = (diag(w) − w wᵀ/W)/τ,  ∂y/∂k = w/W,  ∂y/∂τ = −(∂y/∂x) x/τ.
The Jacobian is symmetric, so one product serves backward and forward mode. All of it is a function
of the *residual* r, the signed distance of y to the nearer of 0 and 1 (w = |r|(1 − |r|)), which
keeps its digits where y itself rounds to 1. Saved: r (and x if the temperature has a gradient).

Cost: a partial sort and 2–4 passes over the row on ordinary data. References: Wijk, Vinuesa &
Azizpour (2025); Amos, Koltun & Kolter (2019), who call it the limited multi-label projection.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations.arguments import (
    Number,
    as_rows,
    check_budget,
    check_mask,
    check_temperature,
    compute_dtype,
    per_row,
    position,
    within_range,
)
from khot.relaxations.hard import hard_topk
from khot.relaxations.logistic_threshold import residual_of, solve
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.straight_through import straight_through

__all__ = ["inverse_sigmoid_topk", "sigmoid_topk"]


def sigmoid_topk(
    x: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest entries of ``x`` along ``dim``.

    .. math:: y_i = \sigma\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    Differentiable in ``x``, in a tensor ``k`` and in a tensor ``temperature``, any number of times,
    in reverse and forward mode.

    Args:
        x: scores, any floating shape. −inf means excluded, +inf surely selected (more than k of
            them share k equally).
        k: budget, 0 ≤ k ≤ n; a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
            It need not be an integer.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``x``; False gets weight 0 and gradient 0. A row with k or
            fewer allowed entries gives each of them exactly 1.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer,
            a tensor is rounded).

    Returns:
        Weights in the shape and dtype of ``x``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in sigmoid_topk(x, 2).tolist()]
        [0.859, 0.451, 0.691]
        >>> [round(v, 3) for v in sigmoid_topk(x, 2, temperature=0.1).tolist()]
        [1.0, 0.007, 0.993]
        >>> sigmoid_topk(x, 2, hard=True).tolist()
        [1.0, 0.0, 1.0]

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """
    y = _native(x, k, temperature, dim, mask)
    if y is None:
        rows = as_rows("sigmoid_topk", x, k, temperature, dim, mask)
        function = _SigmoidTopK if torch.compiler.is_compiling() else _SigmoidTopKForwardMode
        weights, _ = cast("tuple[Tensor, Tensor]", function.apply(*rows))  # pyright: ignore[reportUnknownMemberType]
        y = weights.movedim(-1, dim)
    return straight_through(y, hard_topk(x, k, dim=dim, mask=mask)) if hard else y


def inverse_sigmoid_topk(y: Tensor, *, temperature: Number | Tensor = 1.0) -> Tensor:
    r"""Scores whose sigmoid top-k is ``y``, unique up to a constant along the selected dimension.

    .. math:: x = \tau \log\frac{y}{1 - y}

    so that ``sigmoid_topk(inverse_sigmoid_topk(y), y.sum(-1)) == y``. The constant is the one that
    puts the threshold at 0. A weight of 0 gives −inf and 1 gives +inf.

    Args:
        y: weights in [0, 1], any floating shape; they sum to the budget along any dimension.
        temperature: > 0, a number or a tensor that broadcasts to ``y``.

    Example:
        >>> y = torch.tensor([0.25, 0.5, 0.75, 0.5])
        >>> torch.allclose(sigmoid_topk(inverse_sigmoid_topk(y), 2), y)
        True
    """
    if not y.is_floating_point():
        raise TypeError(f"inverse_sigmoid_topk: y must have a floating-point dtype, got {y.dtype}")
    if is_plain(y):
        low, high = y.detach().aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"inverse_sigmoid_topk: y must lie in [0, 1], got values in [{low.item():g}, {high.item():g}]"
            )
    check_temperature("inverse_sigmoid_topk", temperature)
    return temperature * torch.logit(y)


def _native(
    x: Tensor, k: Number | Tensor, temperature: Number | Tensor, dim: int, mask: Tensor | None
) -> Tensor | None:
    """The weights by the compiled kernel, or None where that cannot be."""
    tensors = [t for t in (x, k, temperature, mask) if isinstance(t, Tensor)]
    if not is_plain(*tensors) or native() is None:
        return None
    name = "sigmoid_topk"
    last = position(name, x, dim)
    check_budget(name, x, k, last)
    check_temperature(name, temperature)
    temperature = within_range(temperature, compute_dtype(x))
    k_rows = per_row(name, "k", x, k, last) if isinstance(k, Tensor) else float(k)
    t_rows = (
        per_row(name, "temperature", x, temperature, last)
        if isinstance(temperature, Tensor)
        else float(temperature)
    )
    if mask is not None:
        check_mask(name, x, mask)
        mask = mask.expand(x.shape).movedim(last, -1)
    rows = x if last == x.dim() - 1 else x.movedim(last, -1)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        dtype = compute_dtype(x)
        if dtype == x.dtype:
            y = cpu.sigmoid_topk(rows, k_rows, t_rows, mask)[0]
        else:
            y = cpu.sigmoid_topk(rows.to(dtype), k_rows, t_rows, mask)[0].to(x.dtype)
        return y if rows is x else y.movedim(-1, last)
    y = cast("tuple[Tensor, Tensor]", _NativeSigmoidTopK.apply(rows, k_rows, t_rows, mask))[0]  # pyright: ignore[reportUnknownMemberType]
    return y if rows is x else y.movedim(-1, last)


def _portable(x: Tensor, k: Tensor, temperature: Tensor, order: int | None) -> tuple[Tensor, Tensor]:
    """Weights (dtype of x) and residuals (dtype of computation), in aten operations only."""
    z, offset, settled, fixed = solve(x.to(compute_dtype(x)), k, temperature, order)
    y = torch.where(settled, fixed, torch.sigmoid(z + offset))
    residual = torch.where(settled, residual_of(fixed), _signed_tail(z + offset))
    return y.to(x.dtype), residual


def _signed_tail(a: Tensor) -> Tensor:
    """σ(a) − [a > 0] without cancellation."""
    tail = torch.sigmoid(-a.abs())
    return torch.where(a > 0, -tail, tail)


def _jacobian_product(residual: Tensor, v: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor]:
    """(∂y/∂x) v, and the w-weighted mean of v, which is ⟨v, ∂y/∂k⟩."""
    if not torch.is_grad_enabled() and cpu.usable(residual, v):
        return cpu.gate_jacobian(residual, v, temperature)
    w = residual.abs() * (1 - residual.abs())
    v = torch.where(w > 0, v, 0)
    mean = (w * v).sum(-1, keepdim=True) / _total(w)
    return w * (v - mean) / temperature, mean


def _total(w: Tensor) -> Tensor:
    return w.sum(-1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)


def _centred_scores(x: Tensor, residual: Tensor) -> Tensor:
    """Scores relative to the largest that still moves; 0 where the weight cannot move.

    Any constant will do for the derivative in the temperature; this one cannot overflow.
    """
    moving = (residual != 0) & x.isfinite()
    centre = torch.where(moving, x, -torch.inf).amax(-1, keepdim=True).detach()
    return torch.where(moving, x - torch.where(centre.isfinite(), centre, 0), 0)


def _gradients(
    residual: Tensor, temperature: Tensor | float, x: Tensor | None, grads: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients in x, k and, if x was saved for it, the temperature."""
    parts = [g.to(residual.dtype) for g in grads if g is not None]
    if not parts:
        return None, None, None
    g = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    grad_x, grad_k = _jacobian_product(residual, g, temperature)
    if x is None:
        return grad_x, grad_k, None
    scores = _centred_scores(x.to(residual.dtype), residual)
    return grad_x, grad_k, -(scores * grad_x).sum(-1, keepdim=True) / temperature


class _NativeSigmoidTopK(torch.autograd.Function):
    """The same by the compiled kernel: k and temperature may be numbers; eager and reverse mode only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Tensor | float, temperature: Tensor | float, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        y, residual = cpu.sigmoid_topk(x.to(compute_dtype(x)), k, temperature, mask, residual=True)
        assert residual is not None
        ctx.set_materialize_grads(False)
        ctx.dtype = x.dtype
        learned = temperature if isinstance(temperature, Tensor) else None
        ctx.temperature = None if isinstance(temperature, Tensor) else temperature
        ctx.save_for_backward(residual, learned, x if ctx.needs_input_grad[2] else None)
        return y.to(x.dtype), residual

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        residual, learned, x = ctx.saved_tensors
        temperature = ctx.temperature if learned is None else learned
        grad_x, grad_k, grad_temperature = _gradients(residual, temperature, x, grads)
        if not ctx.needs_input_grad[1]:
            grad_k = None
        return None if grad_x is None else grad_x.to(ctx.dtype), grad_k, grad_temperature, None


class _SigmoidTopK(torch.autograd.Function):
    """(x, k, temperature, order) → (weights, residual); both have the same derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: Tensor, temperature: Tensor, order: int | None) -> tuple[Tensor, Tensor]:
        return _portable(x, k, temperature, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, _, temperature, _ = inputs
        _, residual = output
        ctx.set_materialize_grads(False)
        ctx.dtype = x.dtype
        learns_temperature = ctx.needs_input_grad[2]
        ctx.save_for_backward(residual, temperature, x if learns_temperature else None)
        ctx.save_for_forward(residual, temperature, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        residual, temperature, x = ctx.saved_tensors
        grad_x, grad_k, grad_temperature = _gradients(residual, temperature, x, grads)
        return None if grad_x is None else grad_x.to(ctx.dtype), grad_k, grad_temperature, None


class _SigmoidTopKForwardMode(_SigmoidTopK):
    """The same with forward-mode derivatives, which Dynamo does not accept."""

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, Tensor]:
        dx, dk, dt, _ = cast("tuple[Tensor | None, ...]", grad_inputs)
        residual, temperature, x = ctx.saved_tensors
        v = torch.zeros_like(residual) if dx is None else dx.to(residual.dtype)
        if dt is not None:
            v = v - _centred_scores(x.to(residual.dtype), residual) * (dt / temperature)
        tangent = _jacobian_product(residual, v, temperature)[0]
        if dk is not None:
            w = residual.abs() * (1 - residual.abs())
            tangent = tangent + w / _total(w) * dk
        return tangent.to(ctx.dtype), tangent


SPEC = register(
    Relaxation(
        name="sigmoid",
        weights=sigmoid_topk,
        real_k=True,
        smooth="C∞",
        max_n=1_000_000,
        reference="Wijk, Vinuesa & Azizpour (2025); Amos, Koltun & Kolter (2019)",
    )
)
