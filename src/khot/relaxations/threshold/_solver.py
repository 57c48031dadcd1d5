"""The threshold of the family: the root of Σ F((xᵢ + c)/τ) = k, for every gate F and every finite input.

One float cannot hold c for large scores (three ties at 1e30 and k = 1 would sum to 1.5). So the row
is anchored at one of its own values, m = x₍⌈k⌉₎, and the unknown is the *offset* e of
z = (x − m)/τ:  y = F(z + e).

Split the row at the anchor into entries below (z < 0) and above. With

    P = Σ_below F(z + e) + (N − k)₊,   Q = Σ_above (1 − F(z + e)) + (k − N)₊,   N = #above,

Σy = k exactly when P = Q. Both are sums of small non-negative terms, none of which cancels against
k, so the root has full relative accuracy when y is nearly hard, when k → 0 and when k → n. And
h = log P − log Q is increasing in e, nearly linear in each of those limits if F has exponential tails:
Halley's method on h, started at the middle of a tight bracket, takes 2–3 steps on ordinary rows
(``_root.py``). The number of steps is fixed, so that the solver can be traced.

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
from khot.relaxations.threshold._root import RowSums, advanced, bracket, started, tie_share

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
    low, high = bracket(gate, k, n_finite, gap)
    offset = _offset(gate, z, ~settled, k, low, high)
    a = z + offset
    return a if gate.reach == math.inf else _refined(gate, a, offset, ~settled, k), settled, fixed


def _difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also where a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def _refined(gate: Gate, a: Tensor, offset: Tensor, active: Tensor, k: Tensor) -> Tensor:
    """``a`` with the digits that its offset could not hold.

    Many small weights may be the difference of z and a much larger offset: one unit in its last place moves
    their sum by as many units. And the search ends where Σy − k may be the rounding of weights near 1, which
    are apart here: it may be more steps away, of which each weight is still a linear function.
    """
    rounding, linear = 8 * torch.finfo(a.dtype).eps, 0.03 * (gate.norm - 1)
    for _ in range(2):
        y = torch.where(active, gate.weights(a), 0)
        full = y >= 1
        left = k - full.sum(-1, keepdim=True)
        slope = _sum(gate.slope(gate.state(a)), active)
        excess = torch.where(full, 0, y).sum(-1, keepdim=True) - left
        step = excess / slope  # NaN: nothing is between 0 and 1
        small = step.abs() <= rounding * offset.abs()
        small = small | ((excess.abs() <= rounding * k) & (step.abs() <= linear))
        a = torch.where(active & small, a - step, a)
    return a


def _offset(gate: Gate, z: Tensor, active: Tensor, k: Tensor, low: Tensor, high: Tensor) -> Tensor:
    above, excess, share = _split(z, active, k)
    in_p, in_q = (active & ~above).to(z.dtype), above.to(z.dtype)
    extra_p, extra_q = excess.clamp_min(0.0), (-excess).clamp_min(0.0)
    may_stop_early = is_plain(z)
    eps = torch.finfo(z.dtype).eps
    search = started(gate, low, high, share)
    for _ in range(gate.steps[z.dtype == torch.float64]):
        a = z + search.offset
        p, p1, p2 = gate.distance(a, above)
        first = _inner_sums(gate, a, in_p + in_q, k) if gate.reach < math.inf else _both(p1, in_p, in_q)
        second = None if p2 is None else _both(p2, in_p, in_q)
        sums = RowSums(_sum(p, in_p) + extra_p, _sum(p, in_q) + extra_q, first, second)
        search, done = advanced(gate, search, sums, k, eps)
        if may_stop_early and bool(done.all()):
            break
    # A NaN score makes its whole row NaN, as softmax does.
    return torch.where(search.difference.isnan(), search.difference, search.offset)


def _inner_sums(gate: Gate, a: Tensor, counts: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the weights in (0, 1), of their slopes, and what is left for them of k."""
    y = gate.weights(a)
    slope = gate.slope(gate.state(a)) * counts
    inside = (y * (slope > 0)).sum(-1, keepdim=True)
    return inside, slope.sum(-1, keepdim=True), k - _sum((y >= 1).to(y.dtype), counts)


def _split(z: Tensor, active: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Who is above the anchor, how many more than k they are, and the share of each tie at the anchor."""
    strictly, weakly = active & (z > 0), active & (z >= 0)
    n_strictly, n_weakly = strictly.sum(-1, keepdim=True), weakly.sum(-1, keepdim=True)
    ties_below, share = tie_share(k, n_strictly, n_weakly)
    above, n_above = strictly | (weakly & ~ties_below), torch.where(ties_below, n_strictly, n_weakly)
    return above, n_above - k, share


def _both(terms: Tensor, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    return _sum(terms, below), _sum(terms, above)


def _sum(terms: Tensor, members: Tensor) -> Tensor:
    return (terms * members).sum(-1, keepdim=True)
