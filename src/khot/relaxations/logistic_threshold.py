"""The threshold of sigmoid top-k: the root of Σ σ((xᵢ + c)/τ) = k, for every finite input.

One float cannot hold c for large scores (three ties at 1e30 and k = 1 would sum to 1.5), so the row
is anchored at one of its own values, m = x₍⌈k⌉₎, and the unknown is the *offset* e of
z = (x − m)/τ:  y = σ(z + e).

Split the row at the anchor into those below (z < 0) and those above. With

    P = Σ_below σ(z + e) + (N − k)₊,   Q = Σ_above σ(−z − e) + (k − N)₊,   N = #above,

Σy = k exactly when P = Q. Both are sums of small non-negative terms, none of which cancels against
k, so the root has full relative accuracy when y is nearly hard, when k → 0 and when k → n. And
h = log P − log Q is increasing in e, linear in each of those limits: Halley's method on h, started at
the middle of a bracket that is tight to log n, takes 2–3 steps on ordinary rows. A step that leaves
the bracket becomes a bisection. The number of steps is fixed, so that the solver can be traced.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels.availability import is_plain

__all__ = ["residual_of", "solve"]

# Adversarial rows need up to 8 (tests/unit/relaxations/test_logistic_threshold*.py); the rest is margin.
_STEPS = {torch.float32: 10, torch.float64: 14}
_FAR = 1e4  # beyond this distance from the anchor, in units of τ, a weight is 0 or 1


def solve(
    x: Tensor, k: Tensor, temperature: Tensor, order: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solve every row of ``x`` (…, n) for budgets ``k`` (…, 1).

    Args:
        x: float32 or float64 scores, −inf where excluded.
        k: budgets.
        temperature: > 0, (…, 1).
        order: how many of the largest scores matter, if k is one number for all rows.

    Returns:
        ``z`` and ``offset``, so that y = σ(z + offset); ``settled``, True where the answer needs no
        root; and ``fixed``, the weights there: all of a row with k or fewer allowed entries or with
        k or more at +inf, and the infinite entries of any other row.
    """
    n = x.shape[-1]
    surely, excluded = x == math.inf, x == -math.inf
    n_surely = surely.sum(-1, keepdim=True)
    n_allowed = n - excluded.sum(-1, keepdim=True)
    saturated = n_allowed <= k
    crowded = ~saturated & (n_surely >= k)
    share = torch.where(crowded, k.clamp_min(0) / n_surely.clamp_min(1), 1.0)
    fixed = torch.where(saturated, (~excluded).to(x.dtype), torch.where(surely, share, 0.0))
    settled = saturated | crowded | surely | excluded
    if n == 0:
        return x, torch.zeros_like(k), settled, fixed

    best = x.sort(-1, descending=True).values if order is None else x.topk(min(order, n)).values
    last = best.shape[-1] - 1
    anchor = best.gather(-1, (k.ceil().long() - 1).clamp(0, last))
    next_best = best.gather(-1, k.floor().long().clamp(0, last))
    is_open = ~(saturated | crowded)
    anchor, next_best = torch.where(is_open, anchor, 0.0), torch.where(is_open, next_best, 0.0)

    z = torch.where(settled, 0.0, _difference(x, anchor, temperature).clamp(-_FAR, _FAR))
    gap = _difference(anchor, next_best, temperature).clamp(0, _FAR)
    k, n_finite = torch.where(is_open, k - n_surely, 0.0), n_allowed - n_surely
    low = (k - (k.ceil() - 1)).log() - (n_finite - k).log()
    high = k.log() - (k.floor() + 1 - k).log() + gap
    return z, _offset(z, ~settled, k, low, high), settled, fixed


def _difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also where a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def residual_of(y: Tensor) -> Tensor:
    """The signed distance of ``y`` to the nearer of 0 and 1."""
    return torch.where(y > 0.5, y - 1, y)


def _offset(z: Tensor, active: Tensor, k: Tensor, low: Tensor, high: Tensor) -> Tensor:
    above, excess, share = _split(z, active, k)
    sign = torch.where(above, -1.0, 1.0).to(z.dtype)
    in_p, in_q = (active & ~above).to(z.dtype), above.to(z.dtype)
    extra_p, extra_q = excess.clamp_min(0), (-excess).clamp_min(0)
    may_stop_early = is_plain(z)
    close = 0.1 * torch.finfo(z.dtype).eps ** (1 / 3)  # the step after this one is exact: cubic

    # Two or more ties at the anchor: if all else is far away, the root is where they share what is left.
    e = torch.where(share > 0, share.log() - (1 - share).log(), (low + high) / 2)
    e = torch.minimum(torch.maximum(e, low), high)
    low, high = low - 1, high + 1  # the root can lie on the edge, and rounding just beyond it
    f = torch.zeros_like(e)
    for _ in range(_STEPS[z.dtype]):
        p = torch.sigmoid(sign * (z + e))
        p1 = p * (1 - p)
        p2 = p1 * (1 - 2 * p)
        big_p, big_q = _sum(p, in_p) + extra_p, _sum(p, in_q) + extra_q
        f = big_p - big_q
        h = big_p.log() - big_q.log()
        slope_p, slope_q = _sum(p1, in_p) / big_p, _sum(p1, in_q) / big_q
        slope = slope_p + slope_q
        bend = _sum(p2, in_p) / big_p - _sum(p2, in_q) / big_q - slope_p.square() + slope_q.square()

        low = torch.where(f < 0, torch.maximum(low, e), low)
        high = torch.where(f > 0, torch.minimum(high, e), high)
        curved = 2 * slope.square() - h * bend
        step = torch.where(curved > 0, 2 * h * slope / curved, h / slope)
        proposal = e - step
        inside = (proposal >= low) & (proposal <= high)
        e = torch.where(f == 0, e, torch.where(inside, proposal, (low + high) / 2))
        if may_stop_early and bool(((f == 0) | (inside & (step.abs() < close)) | ~(f == f)).all()):
            break
    return torch.where(f.isnan(), f, e)  # a NaN score makes its whole row NaN, as softmax does


def _split(z: Tensor, active: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Who is above the anchor, how many more than k they are, and the share of each tie at the anchor.

    Ties go to the nearer side. The share is 0 if there is no other tie, or if it is so near to 0 or 1 that
    the scores beside the ties decide.
    """
    strictly, weakly = active & (z > 0), active & (z >= 0)
    n_strictly, n_weakly = strictly.sum(-1, keepdim=True), weakly.sum(-1, keepdim=True)
    ties_below = k - n_strictly <= n_weakly - k
    above, n_above = torch.where(ties_below, strictly, weakly), torch.where(ties_below, n_strictly, n_weakly)
    ties = n_weakly - n_strictly
    left = k - n_strictly
    return (
        above,
        n_above - k,
        torch.where((ties > 1) & (left > 0.02 * ties) & (left < 0.98 * ties), left / ties.clamp_min(1), 0.0),
    )


def _sum(terms: Tensor, members: Tensor) -> Tensor:
    return (terms * members).sum(-1, keepdim=True)
