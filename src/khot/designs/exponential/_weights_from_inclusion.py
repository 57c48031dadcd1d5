r"""The natural parameters of conditional Poisson sampling from wanted inclusion probabilities.

The fixed point of θ ← θ + logit π − logit π(θ), started at θ = logit π − π/max(V, 1), V = Σπ(1 − π), and
accelerated by Anderson's method over the last five steps; if that does not converge, by halving each step.

The gradient is implicit: dπ = Cov dθ on vectors with sum 0, so that of a loss is Cov⁺ times its gradient in
θ. References: Chen, Dempster & Liu (1994) for the iteration; Anderson (1965).
"""

# torch.linalg has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from khot.designs.exponential._natural_parameters import clamped, inclusion, joint_inclusion, tilt

__all__ = ["weights_from_inclusion"]

_DEPTH = 5
_ACCELERATED, _DAMPED = 40, 200
_TOLERANCE = 1e-11


def weights_from_inclusion(pi: Tensor, k: int) -> Tensor:
    """θ with ∇A(θ) = π, for float64 π (…, n) with sum k; +inf where π = 1, −inf where π = 0."""
    n = pi.shape[-1]
    if k == 1:
        inside = pi > 0
        return torch.where(inside, torch.where(inside, pi, 1.0).log(), -math.inf)
    if k == n - 1:
        inside = pi < 1
        return torch.where(inside, -torch.where(inside, 1 - pi, 1.0).log(), math.inf)
    inside = (pi > 0) & (pi < 1)
    theta = cast("Tensor", _Solve.apply(pi, k))
    return torch.where(inside, theta, torch.where(pi > 0.5, math.inf, -math.inf))


class _Solve(Function):
    """θ on the units with 0 < π < 1, 0 elsewhere."""

    generate_vmap_rule = True

    @staticmethod
    def forward(pi: Tensor, k: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _solve(pi, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.k = inputs[1]
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        pi, theta = ctx.saved_tensors
        inside = (pi > 0) & (pi < 1)
        t = tilt(_with_settled(theta, pi), ctx.k)
        joint = joint_inclusion(clamped(t), ctx.k)
        mean = torch.diagonal(joint, dim1=-2, dim2=-1)
        cov = joint - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        both = inside.unsqueeze(-1) & inside.unsqueeze(-2)
        count = inside.sum(-1, keepdim=True).clamp_min(1).double()
        # Cov has the constants as its kernel: fill it, and take the result back to sum 0.
        filled = torch.where(both, cov + 1 / count.unsqueeze(-1), 0.0)
        filled = filled + torch.diag_embed((~inside).double())
        centred = _centred(grad, inside, count)
        solution = torch.linalg.solve(filled, centred.unsqueeze(-1)).squeeze(-1)
        return _centred(solution, inside, count), None


def _centred(v: Tensor, inside: Tensor, count: Tensor) -> Tensor:
    v = torch.where(inside, v, 0.0)
    return torch.where(inside, v - v.sum(-1, keepdim=True) / count, 0.0)


def _with_settled(theta: Tensor, pi: Tensor) -> Tensor:
    return torch.where(pi <= 0, -math.inf, torch.where(pi >= 1, math.inf, theta))


def _solve(pi: Tensor, k: int) -> Tensor:
    n = pi.shape[-1]
    rows = pi.detach().reshape(-1, n)
    inside = (rows > 0) & (rows < 1)
    target = torch.where(inside, rows, 0.5)
    logit = torch.logit(target)
    spread = target * (1 - target)
    volume = torch.where(inside, spread, 0.0).sum(-1, keepdim=True)
    theta = torch.where(inside, logit - rows / volume.clamp_min(1), 0.0)
    best, best_error = theta, torch.full_like(volume, math.inf)
    steps: list[Tensor] = []
    residuals: list[Tensor] = []
    for iteration in range(_ACCELERATED + _DAMPED):
        found = inclusion(clamped(tilt(_with_settled(theta, rows), k)), k)
        error = torch.where(inside, (found - rows).abs() / (spread + 1e-4), 0.0).amax(-1, keepdim=True)
        better = error < best_error
        best, best_error = torch.where(better, theta, best), torch.where(better, error, best_error)
        if bool((best_error <= _TOLERANCE).all()):
            break
        tiny = torch.finfo(found.dtype).tiny
        step = logit - (found.clamp_min(tiny).log() - (1 - found).clamp_min(tiny).log())
        step = torch.where(inside, step, 0.0)
        if iteration >= _ACCELERATED:
            if iteration == _ACCELERATED:
                theta, step = best, torch.zeros_like(best)
            theta = theta + step / 2
            continue
        steps, residuals = [*steps, theta + step][-_DEPTH - 1 :], [*residuals, step][-_DEPTH - 1 :]
        theta = _anderson(steps, residuals)
        theta = torch.where(theta.isfinite(), theta, steps[-1])
    return best.view(pi.shape)


def _anderson(steps: list[Tensor], residuals: list[Tensor]) -> Tensor:
    """The combination of steps whose residuals, combined likewise, are smallest."""
    if len(steps) == 1:
        return steps[0]
    differences = torch.stack([residuals[-1] - r for r in residuals[:-1]], -1)
    moves = torch.stack([steps[-1] - s for s in steps[:-1]], -1)
    weights = torch.linalg.lstsq(differences, residuals[-1].unsqueeze(-1), driver="gelsd").solution
    return steps[-1] - (moves @ weights).squeeze(-1)
