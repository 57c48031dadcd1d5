"""∂y/∂k where the slopes cannot give it: in rows that are nearly hard, and in rows that are settled.

    ∂y/∂k = w/W,   w = F′,   W = Σw.

If k is an integer and the gap g between the k-th and the next score is wide (in units of τ), all of w is
about exp(−hundreds), too small for a float; the ratios are not. Let b be the distance of a score from the
threshold, d₁ and d₂ with d₁ + d₂ = g the distances of the nearest scores above and below it, and r how much
farther away another score is. Then

    log F′(b + r) − log F′(b) = −r s(b + r/2),   s the *steepness* of the gate's tail: 1, or b for the normal,

and at the threshold Σ(1 − F) above equals ΣF below; both are F′ divided by the *hazard* of the tail. This is
a fixed-point equation in δ = d₁ − d₂, whose error shrinks by about 1/g² per step. No number in it overflows
or underflows.

If m > k scores are at +inf, each has k/m, so ∂y/∂k = 1/m.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._settled import settle
from khot.relaxations.threshold._gates import Gate

__all__ = ["budget_shares"]

_NONE = -1e300  # the logarithm of nothing, without an infinity that would make NaN of a gradient
_FARTHEST = 1e100  # in units of τ; its square is finite


def budget_shares(
    gate: Gate, slope: Tensor, x: Tensor, k: Tensor, temperature: Tensor | float
) -> tuple[Tensor, Tensor] | None:
    """The rows (…, 1) whose slopes cannot give ∂y/∂k, and its values there (…, n); None if there are none.

    Args:
        gate: F.
        slope: F′ of each entry, (…, n).
        x: scores, −inf where excluded.
        k: budgets, (…, 1).
        temperature: > 0, a number or (…, 1).
    """
    vanishing = slope.amax(-1, keepdim=True) < math.sqrt(torch.finfo(slope.dtype).tiny)
    if is_plain(slope) and not bool(vanishing.any()):
        return None
    _, _, is_open, _, n_finite = settle(x, k)
    surely = x == math.inf
    n_surely = surely.sum(-1, keepdim=True)
    crowded = vanishing & ~is_open & (n_finite + n_surely > k) & (n_surely > 0)
    equal = surely.to(slope.dtype) / n_surely.clamp_min(1)
    if gate.steepness is None:
        return crowded, equal
    best = x.sort(-1, descending=True).values
    at, last = (k.ceil().long() - 1).clamp_min(0), x.shape[-1] - 1
    upper, lower = best.gather(-1, at.clamp_max(last)), best.gather(-1, (at + 1).clamp_max(last))
    hard = vanishing & is_open & (k == k.ceil()) & (upper > lower)
    shares = _shares(gate, x, upper, lower, temperature, hard).to(slope.dtype)
    return hard | crowded, torch.where(hard, shares, equal)


def _shares(
    gate: Gate, x: Tensor, upper: Tensor, lower: Tensor, temperature: Tensor | float, hard: Tensor
) -> Tensor:
    """w/W of rows whose gap is from ``lower`` to ``upper``; anything finite where they are not ``hard``."""
    assert gate.steepness is not None
    wide = x.dtype if x.device.type == "mps" else torch.float64  # digits of far scores
    finite = x.isfinite()
    above, below = ~hard | (finite & (x >= upper)), ~hard | (finite & (x <= lower))
    x, upper, lower = x.to(wide), torch.where(hard, upper, 1).to(wide), torch.where(hard, lower, 0).to(wide)

    def distance(a: Tensor, b: Tensor, where: Tensor) -> Tensor:
        apart = torch.where(where, a, 0) / 2 - torch.where(where, b, 0) / 2  # cannot overflow
        return (apart / temperature).clamp_max(_FARTHEST / 2) * 2

    beyond_upper = distance(x, upper, above & hard)
    beyond_lower = distance(lower, x, below & hard)
    gap = distance(upper, lower, hard).clamp_min(4)  # far wider where it matters
    uneven = torch.zeros_like(gap)  # δ
    for _ in range(8):
        sums: list[Tensor] = []
        for nearest, farther, side in (
            ((gap + uneven) / 2, beyond_upper, above),
            ((gap - uneven) / 2, beyond_lower, below),
        ):
            tail = -farther * gate.steepness(nearest + farther / 2) - gate.log_hazard(nearest + farther)
            sums.append(torch.where(side, tail, _NONE).logsumexp(-1, keepdim=True))
        uneven = (sums[0] - sums[1]) / gate.steepness(gap / 2)
    in_upper = -beyond_upper * gate.steepness((gap + uneven + beyond_upper) / 2)
    in_lower = -beyond_lower * gate.steepness((gap - uneven + beyond_lower) / 2)
    slopes = torch.where(above, in_upper - uneven * gate.steepness(gap / 2), in_lower)
    return torch.where(above | below, slopes, _NONE).softmax(-1)
