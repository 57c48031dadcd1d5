"""The threshold of the family: the root of Σ F((xᵢ + c)/τ) = k, for every gate F and every finite input.

One float cannot hold c for large scores (three ties at 1e30 and k = 1 would sum to 1.5), so the row
is anchored at one of its own values, m = x₍⌈k⌉₎, and the unknown is the *offset* e of
z = (x − m)/τ:  y = F(z + e).

Split the row at the anchor into those below (z < 0) and those above. With

    P = Σ_below F(z + e) + (N − k)₊,   Q = Σ_above (1 − F(z + e)) + (k − N)₊,   N = #above,

Σy = k exactly when P = Q. Both are sums of small non-negative terms, none of which cancels against
k, so the root has full relative accuracy when y is nearly hard, when k → 0 and when k → n. And
h = log P − log Q is increasing in e, nearly linear in each of those limits if F has exponential tails:
Halley's method on h, started at the middle of a tight bracket, takes 2–3 steps on ordinary rows. A gate
whose tails reach 0 says itself how to step (`Gate.step`). A step that leaves the bracket becomes
a bisection. The number of steps is fixed, so that the solver can be traced.

The bracket, for any F and in units of τ around the anchor, with g = (x₍⌈k⌉₎ − x₍⌊k⌋₊₁₎)/τ:

    F⁻¹((k − ⌈k⌉ + 1)/(n − ⌈k⌉ + 1))  ≤  e  ≤  F⁻¹(k/(⌊k⌋ + 1)) + g.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._settled import settle
from khot.relaxations.threshold._gates import Gate

__all__ = ["solve"]


def solve(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve every row of ``x`` (…, n) for budgets ``k`` (…, 1).

    Args:
        gate: F.
        x: float32 or float64 scores, −inf where excluded.
        k: budgets.
        temperature: > 0, (…, 1).
        n_sorted: how many of the largest scores matter, if k is one number for all rows.

    Returns:
        a = z + e, so that y = F(a); ``settled``, True where the answer needs no root; and ``fixed``, the
        weights there: all of a row with k or fewer allowed entries or with k or more at +inf, and the
        infinite entries of any other row.
    """
    n = x.shape[-1]
    settled, fixed, is_open, k_left, n_finite = settle(x, k)
    if n == 0:
        return x, settled, fixed

    best = x.sort(-1, descending=True).values if n_sorted is None else x.topk(min(n_sorted, n)).values
    last = best.shape[-1] - 1
    anchor = best.gather(-1, (k.ceil().long() - 1).clamp(0, last))
    next_best = best.gather(-1, k.floor().long().clamp(0, last))
    anchor, next_best = torch.where(is_open, anchor, 0.0), torch.where(is_open, next_best, 0.0)

    z = torch.where(settled, 0.0, _difference(x, anchor, temperature).clamp(-gate.far, gate.far))
    gap = _difference(anchor, next_best, temperature).clamp(0.0, gate.far)
    k = k_left
    others, rest = n_finite - k.ceil() + 1, k.floor() + 1
    low = gate.quantile((k - (k.ceil() - 1)) / others, (n_finite - k) / others)
    high = (gate.quantile(k / rest, (rest - k) / rest) + gap).clamp_max(gate.reach)
    offset = _offset(gate, z, ~settled, k, low, high)
    a = z + offset
    return a if gate.reach == math.inf else _refined(gate, a, offset, ~settled, k), settled, fixed


def _difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also where a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def _refined(gate: Gate, a: Tensor, offset: Tensor, active: Tensor, k: Tensor) -> Tensor:
    """``a`` with the digits that its offset could not hold.

    Many small weights may be the difference of z and a much larger offset: one unit in its last place moves
    their sum by as many units.
    """
    resolution = 8 * torch.finfo(a.dtype).eps * offset.abs()
    for _ in range(2):
        y = torch.where(active, gate.weights(a), 0)
        full = y >= 1
        left = k - full.sum(-1, keepdim=True)
        slope = _sum(gate.slope(gate.state(a)), active)
        step = (torch.where(full, 0, y).sum(-1, keepdim=True) - left) / slope
        a = torch.where(active & (step.abs() <= resolution), a - step, a)  # NaN: nothing is between 0 and 1
    return a


def _offset(gate: Gate, z: Tensor, active: Tensor, k: Tensor, low: Tensor, high: Tensor) -> Tensor:
    above, excess, share = _split(z, active, k)
    in_p, in_q = (active & ~above).to(z.dtype), above.to(z.dtype)
    extra_p, extra_q = excess.clamp_min(0.0), (-excess).clamp_min(0.0)
    may_stop_early = is_plain(z)
    eps = torch.finfo(z.dtype).eps
    rounding = 4 * eps
    relative = gate.reach < math.inf  # e > 0 then, of the size of the weights: steps are measured by it
    # After a step that is close, the next is exact: unless scores cross a corner of F in it.
    close = rounding if relative else 0.1 * eps ** (1 / gate.convergence)

    # Two or more ties at the anchor: if all else is far away, the root is where they share what is left.
    e = torch.where(share > 0, gate.quantile(share, 1 - share), (low + high) / 2)
    e = torch.minimum(torch.maximum(e, low), high)
    # The root can lie on the edge, and rounding just beyond it.
    low, high = (low * (1 - 1e-3), high * (1 + 1e-3)) if relative else (low - 1, high + 1)
    f, last_step = torch.zeros_like(e), 2 * (high - low)
    way = torch.zeros_like(e)  # the sign of the last step, 0 after a bisection
    for _ in range(gate.steps[z.dtype == torch.float64]):
        p, p1, p2 = gate.distance(z + e, above)
        big_p, big_q = _sum(p, in_p) + extra_p, _sum(p, in_q) + extra_q
        f = big_p - big_q
        if relative:  # weights reach 1: what is left of the difference may be their rounding
            f = torch.where(f.abs() <= rounding * k, 0, f)
        low = torch.where(f < 0, torch.maximum(low, e), low)
        high = torch.where(f > 0, torch.minimum(high, e), high)
        if not relative:
            h = big_p.log() - big_q.log()
            slope_p, slope_q = _sum(p1, in_p) / big_p, _sum(p1, in_q) / big_q
            slope = slope_p + slope_q
            bend = slope_q.square() - slope_p.square()
            if p2 is not None:
                bend = bend + _sum(p2, in_p) / big_p - _sum(p2, in_q) / big_q
            curved = 2 * slope.square() - h * bend
            step = torch.where(curved > 0, 2 * h * slope / curved, h / slope)
        else:
            step = gate.step(z + e, in_p + in_q, k)
        unit = e.abs() if relative else torch.ones_like(e)
        proposal = e - step
        inside = (proposal > low) & (proposal < high)
        if gate.convergence == 2:  # steps must shrink: between two pieces of F they may go to and fro
            shrinks = step.abs() <= torch.maximum(last_step / 2, close * unit)
            # Those of a piecewise F are exact in a piece: one way they may be as long as before.
            inside = inside & (shrinks | (step.sign() * way > 0) if relative else shrinks)
        inside = inside | (step.abs() <= rounding * (e.abs() if relative else 1 + e.abs()))
        last_step = torch.where(inside, step.abs(), 2 * (high - low))
        way = torch.where(inside, step.sign(), 0)
        e = torch.where(f == 0, e, torch.where(inside, proposal, (low + high) / 2))
        if may_stop_early and bool(((f == 0) | (inside & (step.abs() < close * unit)) | ~(f == f)).all()):
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
    above, n_above = strictly | (weakly & ~ties_below), torch.where(ties_below, n_strictly, n_weakly)
    ties = n_weakly - n_strictly
    left = k - n_strictly
    return (
        above,
        n_above - k,
        torch.where((ties > 1) & (left > 0.02 * ties) & (left < 0.98 * ties), left / ties.clamp_min(1), 0.0),
    )


def _sum(terms: Tensor, members: Tensor) -> Tensor:
    return (terms * members).sum(-1, keepdim=True)
