r"""The natural parameters of conditional Poisson sampling that give the wanted inclusion probabilities.

They are the fixed point of θ ← θ + logit π − logit π(θ), started at θ = logit π − π/max(V, 1), V = Σπ(1 − π),
and accelerated by Anderson's method over the last five steps; if that does not converge, each step is halved.
The compiled kernel takes plain steps; rows that do not converge by them come here. For units that are almost
certain or almost impossible, π(θ) has too few digits for a logarithm, and a closed form is used: with A_k =
log e_k(exp θ), logit π(θ) → θ + A_{k−1} − A_k as π → 0, and θ + A_k − A_{k+1} as π → 1.

The gradient is implicit: dπ = Cov dθ on vectors with sum 0, so the gradient of a loss in π is Cov⁺ times its
gradient in θ. References: Chen, Dempster & Liu (1994) for the iteration; Anderson (1965).
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

from khot.designs.exponential._natural_parameters import (
    clamped,
    has_kernel,
    inclusion,
    joint_inclusion,
    log_partition,
    tilt,
)
from khot.kernels import cpu
from khot.relaxations._linear_systems import solved

__all__ = ["weights_from_inclusion"]

_DEPTH = 5
_ACCELERATED, _DAMPED = 40, 200
_PLAIN = 30  # steps of the kernel, which are not accelerated; rows that need more are rare
_TOLERANCE = 1e-11
_NEARLY_SETTLED = 1e-8  # π(1 − π) from where the limit is as good as what rounding leaves of π(θ)
_FLAT = 1e-12  # π(1 − π) below which a unit has no gradient


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
        t = tilt(_with_settled(theta, pi), ctx.k)
        joint = joint_inclusion(clamped(t), ctx.k)
        mean = torch.diagonal(joint, dim1=-2, dim2=-1)
        spread = mean * (1 - mean)
        inside = spread > _FLAT
        # In units of the standard deviations: variances may differ by many orders of magnitude.
        size = torch.where(inside, spread, 0.0).sqrt()
        scale = torch.where(inside, 1 / torch.where(inside, size, 1.0), 0.0)
        cov = joint - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        correlation = cov * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        # The constants are the kernel of Cov: fill it, and keep out of it.
        total = size.square().sum(-1, keepdim=True)
        kernel = size / torch.where(total > 0, total, 1.0).sqrt()
        filled = correlation + kernel.unsqueeze(-1) * kernel.unsqueeze(-2)
        filled = filled + torch.diag_embed((~inside).double())
        right = _without(kernel, grad * scale)
        return _without(kernel, solved(filled, right)) * scale, None


def _without(kernel: Tensor, v: Tensor) -> Tensor:
    """v without its part along the unit vectors ``kernel``."""
    return v - kernel * (kernel * v).sum(-1, keepdim=True)


def _with_settled(theta: Tensor, pi: Tensor) -> Tensor:
    return torch.where(pi <= 0, -math.inf, torch.where(pi >= 1, math.inf, theta))


def _solve(pi: Tensor, k: int) -> Tensor:
    rows = pi.detach().reshape(-1, pi.shape[-1])
    if not has_kernel(rows, k):
        return _accelerated(rows, k).view(pi.shape)
    odds, error = cpu.poisson_weights(rows, k, _TOLERANCE, _PLAIN)
    theta = odds.log()
    failed = (error > _TOLERANCE).squeeze(-1).nonzero()
    if len(failed):
        theta[failed.squeeze(-1)] = _accelerated(rows[failed.squeeze(-1)], k)
    return theta.view(pi.shape)


def _accelerated(rows: Tensor, k: int) -> Tensor:
    inside = (rows > 0) & (rows < 1)
    target = torch.where(inside, rows, 0.5)
    logit = torch.logit(target)
    spread = target * (1 - target)
    volume = torch.where(inside, spread, 0.0).sum(-1, keepdim=True)
    theta = torch.where(inside, logit - rows / volume.clamp_min(1), 0.0)
    weight = torch.where(inside, spread, 0.0).sqrt()
    best, best_error = theta, torch.full_like(volume, math.inf)
    steps: list[Tensor] = []
    residuals: list[Tensor] = []
    for iteration in range(_ACCELERATED + _DAMPED):
        t = clamped(tilt(_with_settled(theta, rows), k))
        found = inclusion(t, k)
        error = torch.where(inside, (found - rows).abs() / (spread + 1e-4), 0.0).amax(-1, keepdim=True)
        better = error < best_error
        best, best_error = torch.where(better, theta, best), torch.where(better, error, best_error)
        if bool((best_error <= _TOLERANCE).all()):
            break
        step = torch.where(inside, logit - _logit_of(found, t, k, spread < _NEARLY_SETTLED), 0.0)
        if iteration >= _ACCELERATED:
            if iteration == _ACCELERATED:
                theta, step = best, torch.zeros_like(best)
            theta = theta + step / 2
            continue
        steps, residuals = [*steps, theta + step][-_DEPTH - 1 :], [*residuals, step][-_DEPTH - 1 :]
        theta = _anderson(steps, residuals, weight)
        theta = torch.where(theta.isfinite(), theta, steps[-1])
    return best


def _logit_of(found: Tensor, t: Tensor, k: int, settled: Tensor) -> Tensor:
    """logit π(θ) from π(θ) and θ = t."""
    tiny = torch.finfo(found.dtype).tiny
    logit = found.clamp_min(tiny).log() - (1 - found).clamp_min(tiny).log()
    if not bool(settled.any()):
        return logit
    below, here, above = (log_partition(t, size).unsqueeze(-1) for size in (k - 1, k, k + 1))
    limit = t + torch.where(t < 0, below - here, here - above)
    return torch.where(settled & limit.isfinite(), limit, logit)


def _anderson(steps: list[Tensor], residuals: list[Tensor], weight: Tensor) -> Tensor:
    """The combination of steps whose residuals, combined likewise, are smallest where units are open."""
    if len(steps) == 1:
        return steps[0]
    differences = torch.stack([residuals[-1] - r for r in residuals[:-1]], -1)
    moves = torch.stack([steps[-1] - s for s in steps[:-1]], -1)
    right = (residuals[-1] * weight).unsqueeze(-1)
    shares = torch.linalg.lstsq(differences * weight.unsqueeze(-1), right, driver="gelsd").solution
    return steps[-1] - (moves @ shares).squeeze(-1)
