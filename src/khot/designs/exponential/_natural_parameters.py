r"""Conditional Poisson sampling as a function of its natural parameters θ.

    p(s) = exp(Σ_{i∈s} θᵢ − A),   A = log Σ_s exp Σ_{i∈s} θᵢ = log e_k(exp θ),   π = ∇A,   Cov = ∇²A.

θ and θ + c are the same design. The *tilt* is the c with Σσ(θᵢ + c) = k (that is sigmoid top-k). With
t = θ + c the sums are of order one, whatever θ was. Units with |t| beyond `FAR` are certain or impossible up
to e⁻²⁰⁰, and are computed as if they were at ±FAR; ``log_prob`` still uses their own θ.
"""

# torch.func has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function

from khot.designs.exponential import _symmetric_scan, _symmetric_tree
from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.relaxations import hard_topk, sigmoid_topk, straight_through
from khot.relaxations._chunks import at_once

__all__ = [
    "FAR",
    "SCAN",
    "clamped",
    "compiled_inclusion",
    "draw",
    "has_kernel",
    "inclusion",
    "joint_from_mean",
    "joint_inclusion",
    "log_partition",
    "log_weight",
    "takes_scan",
    "threshold",
    "tilt",
    "vjp",
    "within_unit",
]

FAR = 200.0
SCAN = 100  # up to this many, k cumulative sums are cheaper than a product tree
_POWERS = 4  # what is differentiated may be so several times; a draw is not
_ROWS_AT_ONCE = 1 << 24  # entries of Hessians that are computed at a time


class Tilt(NamedTuple):
    """t = (θ − reference) + start, both (…, 1) in float64; in settled rows t is ±inf as y (…, n) says."""

    reference: Tensor
    start: Tensor
    settled: Tensor
    y: Tensor


def tilt(theta: Tensor, k: int) -> Tensor:
    """t = θ + c in float64, with the gradient of θ; ±inf where a unit is always or never drawn."""
    reference, start, settled, y = threshold(theta.detach(), k)
    t = (theta.double() - reference) + start
    return torch.where(settled, torch.where(y > 0.5, math.inf, -math.inf), t)


def threshold(theta: Tensor, k: int) -> Tilt:
    """The tilt of θ, computed without a gradient."""
    fixed = theta
    # The precision of the scores will do: any c near the threshold is as good.
    y = sigmoid_topk(fixed, k)
    never, surely = fixed == -math.inf, fixed == math.inf
    settled = ((~never).sum(-1, keepdim=True) <= k) | (surely.sum(-1, keepdim=True) >= k)
    widest, at = (y * (1 - y)).max(-1, keepdim=True)
    reference, start = fixed.gather(-1, at).double(), torch.logit(y.gather(-1, at).double())
    hard = widest < 1e-6
    if not is_plain(hard) or bool(hard.any()):
        # A row whose gates are all 0 or 1 but for rounding: the threshold is in the middle of its gap.
        chosen = hard_topk(fixed, k) > 0
        low = torch.where(chosen, fixed, math.inf).amin(-1, keepdim=True).double()
        high = torch.where(chosen, -math.inf, fixed).amax(-1, keepdim=True).double()
        reference, start = torch.where(hard, low, reference), torch.where(hard, low / 2 - high / 2, start)
    reference, start = torch.where(settled, 0.0, reference), torch.where(settled, 0.0, start)
    return Tilt(reference, start, settled, y)


def clamped(t: Tensor) -> Tensor:
    """t clamped to ±FAR; entries beyond have no gradient."""
    far = t.abs() > FAR
    return torch.where(far, FAR * t.detach().sign(), torch.where(far, 0.0, t))


def log_weight(t: Tensor, x: Tensor) -> Tensor:
    """Σt over the units in the booleans x, −inf if impossible; to subtract `log_partition` of clamped t from.

    Units beyond FAR are in every likely set; a set without one of them is penalised.
    """
    near, excess = t.clamp_max(FAR), (t - FAR).clamp_min(0)
    terms = torch.where(x, near, -excess)
    possible = terms > -math.inf
    total = torch.where(possible, terms, 0.0).sum(-1)
    return torch.where(possible.all(-1), total, -math.inf)


def log_partition(t: Tensor, k: int, scan: bool | None = None) -> Tensor:
    """log e_k(exp t) for clamped t; by the complement if that is smaller.

    Args:
        t: float64 (…, n).
        k: the degree.
        scan: whether to use the scan, if that is already known.
    """
    smaller, weights = _smaller(t, k)
    scan = takes_scan(t, k) if scan is None else scan
    value = (_symmetric_scan if scan else _symmetric_tree).log_polynomial(weights, smaller)
    return value if smaller == k else t.sum(-1) + value


def _smaller(t: Tensor, k: int) -> tuple[int, Tensor]:
    """To draw k by t is to leave out n − k by −t: whichever is fewer."""
    n = t.shape[-1]
    return (k, t) if 2 * k <= n else (n - k, -t)


def takes_scan(t: Tensor, k: int) -> bool:
    """Whether the polynomials of t are computed by the scan; never if values cannot be read."""
    smaller, weights = _smaller(t, k)
    return _fits_scan(weights, smaller, _POWERS)


def _fits_scan(t: Tensor, k: int, powers: int) -> bool:
    return k == 0 or (k <= SCAN and _symmetric_scan.fits(t, k, powers))


def inclusion(t: Tensor, k: int, scan: bool | None = None) -> Tensor:
    """π = ∇A at clamped t, differentiable again; the arguments are those of `log_partition`."""
    if k in (0, t.shape[-1]):
        return float(k > 0) + 0 * t  # a constant, but with the graph of t
    if has_kernel(t, k):
        zero = t.new_zeros((*t.shape[:-1], 1))
        return compiled_inclusion(t, zero, zero, k)
    return _portable_inclusion(t, k, scan)


def has_kernel(t: Tensor, k: int) -> bool:
    """Whether the compiled tables can be used: rows up to a maximal length, 0 < k < n."""
    return 0 < k < t.shape[-1] and min(k, t.shape[-1] - k) <= SCAN and cpu.usable(t)


def compiled_inclusion(theta: Tensor, reference: Tensor, start: Tensor, k: int) -> Tensor:
    """π by the kernel, at t = (θ − reference) + start, in the dtype of θ."""
    return cast("Tensor", _CompiledInclusion.apply(theta, reference, start, k))


class _CompiledInclusion(Function):
    """The kernels forward and backward; where a graph of the gradient is asked for, the portable product."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, reference: Tensor, start: Tensor, k: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.k = k
        ctx.save_for_backward(theta, reference, start)
        return cpu.poisson_inclusion(theta, reference, start, k)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        theta, reference, start = ctx.saved_tensors
        if not torch.is_grad_enabled() and cpu.usable(grad):
            return cpu.poisson_covariance(theta, reference, start, ctx.k, grad), None, None, None
        t = clamped((theta.double() - reference) + start)
        _, product = vjp(lambda s: _portable_inclusion(s, ctx.k), t)
        return product(grad.double())[0].to(theta.dtype), None, None, None


def _portable_inclusion(t: Tensor, k: int, scan: bool | None = None) -> Tensor:
    scan = takes_scan(t, k) if scan is None else scan
    value, product = vjp(lambda s: log_partition(s, k, scan), t)
    return within_unit(product(torch.ones_like(value))[0])


def within_unit(pi: Tensor) -> Tensor:
    """Clamp probabilities that rounding left slightly outside [0, 1]; the gradient is unchanged."""
    return straight_through(pi, pi.clamp(0, 1))


def vjp(function: Callable[[Tensor], Tensor], t: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor]]]:
    """Value and vector–Jacobian product; unlike torch.autograd.grad it can be nested under torch.func."""
    return cast("tuple[Tensor, Callable[[Tensor], tuple[Tensor]]]", torch.func.vjp(function, t))


def joint_inclusion(t: Tensor, k: int) -> Tensor:
    """P(xᵢ = xⱼ = 1), shape (…, n, n), with π on the diagonal."""
    scan = takes_scan(t, k)
    return joint_from_mean(lambda s: inclusion(s, k, scan), t, k)


def joint_from_mean(mean: Callable[[Tensor], Tensor], t: Tensor, k: int) -> Tensor:
    """P(xᵢ = xⱼ = 1) = ∂πᵢ/∂tⱼ + πᵢπⱼ, for a mean π of a family that t tilts."""
    n = t.shape[-1]
    pi, product = vjp(mean, t)
    directions = torch.eye(n, dtype=t.dtype, device=t.device).view(n, *(1 for _ in t.shape[:-1]), n)
    size = at_once(t.numel() * min(k + 1, SCAN), _ROWS_AT_ONCE)
    rows = torch.func.vmap(lambda v: product(v.expand(pi.shape))[0], chunk_size=size)(directions)
    joint = rows.movedim(0, -2) + pi.unsqueeze(-1) * pi.unsqueeze(-2)
    same = torch.eye(n, dtype=torch.bool, device=t.device)
    return torch.where(same, pi.unsqueeze(-1), joint)


def draw(t: Tensor, k: int, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Increasing indices (*sample_shape, …, k) for t from `tilt`."""
    n = t.shape[-1]
    shape = (*sample_shape, *t.shape[:-1])
    if 2 * k > n:
        others = draw(-t, n - k, sample_shape, generator)
        x = torch.ones((*shape, n), dtype=torch.bool, device=t.device).scatter_(-1, others, False)
        return x.nonzero()[:, -1].view(*shape, k)
    if k == 0 or 0 in shape:
        return torch.empty((*shape, k), dtype=torch.long, device=t.device)
    t = clamped(t)
    if k <= SCAN and is_plain(t):
        w = t.detach().exp()
        if _symmetric_scan.in_range(w, k):
            return _symmetric_scan.sample(w, k, sample_shape, generator)
    x = _symmetric_tree.sample_from_tree(_symmetric_tree.product_tree(t, k), k, sample_shape, generator)
    return x.nonzero()[:, -1].view(*shape, k)
