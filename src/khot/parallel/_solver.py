r"""The threshold of a row that several processes hold.

``khot.relaxations.threshold._solver`` states the problem: y = F(z + e), z = (x − m)/τ, where m is the anchor
and e the root of P = Q, two sums over the row. Each process sums over its shard in float64, one message adds
the sums of all processes (10 numbers per row and step), and all take the same step
(``khot.relaxations.threshold._root``). No score is sent.

The anchor of a long row is an estimate of its threshold (``_estimate.py``). From there two or three sums are
enough, and P and Q are sums of small terms on either side of it. But if hardly any weight lies between 0 and
1, the anchor must be the ⌈k⌉-th largest score, which has to be found first (``_order_statistic.py``). The
same holds for short rows, and for rows whose shards are very different.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.parallel._estimate import estimated
from khot.parallel._group import Group
from khot.parallel._order_statistic import census, next_largest, order_statistic
from khot.parallel._sums import LocalSums, Rows, difference, local_sums, row_sums
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._root import Search, advanced, bracket, started, tie_share

__all__ = ["Threshold", "solve"]

_LONG = 1 << 18  # from here on the threshold of a row is guessed first
_NEAR = 2.0  # how far off a guess may be, in units of τ,
_STEPS = 5  # how many steps from it may be taken,
_SLOPES = 1.0  # and what slopes must sum to where it leads


class Threshold(NamedTuple):
    """What determines the weights of a row, each (rows, 1) and the same in all processes.

    The weight of a finite score is F(z + offset − fine) if the row ``is_open``, else ``rest``. The weight of
    +inf is ``sure``, and that of −inf is 0. A row with a NaN is ``invalid``. ``next_best`` is the largest
    score that an integer k leaves out.
    """

    anchor: Tensor
    offset: Tensor
    fine: Tensor
    is_open: Tensor
    rest: Tensor
    sure: Tensor
    n_sure: Tensor
    next_best: Tensor
    invalid: Tensor


def solve(gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n: int, group: Group) -> Threshold:
    """The thresholds of rows, given this process's shard ``x`` (rows, here) and budgets ``k`` (rows, 1).

    Args:
        gate: F.
        x: float32 or float64, −inf where excluded.
        k: budgets of the whole rows, in the dtype of x.
        temperature: > 0, (rows, 1).
        n: the length of a whole row.
        group: the processes.
    """
    if n >= _LONG and (guess := estimated(gate, x, k, temperature, n, group)) is not None:
        found = _near(gate, x, k, temperature, guess, group)
        if found is not None:
            return found
    return _anchored(gate, x, k, temperature, group)


def _near(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, guess: Tensor, group: Group
) -> Threshold | None:
    """The threshold, from a guess; None if a row has none, or the guess does not lead there soon."""
    half = torch.full_like(k, 0.5, dtype=torch.float64)
    middle = gate.quantile(half, half)
    low, high = middle - _NEAR, middle + _NEAR
    if gate.reach < math.inf:
        low, high = low.clamp_min(0), high.clamp_max(gate.reach)
    search = Search(middle, low, high, torch.zeros_like(half), 2 * (high - low), torch.zeros_like(half))
    no = torch.zeros_like(k, dtype=torch.bool)
    rows = Rows(gate, guess, temperature, no, k.double())
    sums_at = local_sums(rows, x)
    n_sure = torch.zeros_like(half)
    for step in range(_STEPS):
        local = sums_at(*_in_two(search.offset, x.dtype))
        if step == 0:
            everyone = group.total(torch.cat([local, _infinities(x, local)], -1))
            local, (n_sure, n_nan) = everyone[:, :-2], everyone[:, -2:].chunk(2, -1)
            rows = rows._replace(k_left=rows.k_left - n_sure)
            n_finite = local[:, 4:5] + local[:, 9:]
            if not bool(((n_nan == 0) & (rows.k_left > 0) & (rows.k_left < n_finite)).all()):
                return None
        else:
            group.total(local)
        sums = row_sums(rows, local)
        slopes = sums.first[1] if gate.reach < math.inf else sums.first[0] + sums.first[1]
        search, done = advanced(gate, search, sums, sums.p + sums.q, torch.finfo(x.dtype).eps)
        if not bool((slopes >= _SLOPES).all()):
            return None
        if bool(done.all()):  # by the same sums: the same in all processes
            offset, fine = _in_two(search.offset, x.dtype)
            zero, one = torch.zeros_like(k), torch.ones_like(k)
            return Threshold(guess, offset, fine, ~no, zero, one, n_sure, guess, no)
    return None


def _in_two(offset: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A float64 offset rounded to the dtype, and the rounding error."""
    rounded = offset.to(dtype)
    return rounded, (rounded.double() - offset).to(dtype)


def _infinities(x: Tensor, sums: Tensor) -> Tensor:
    """How many scores are +inf and NaN, (rows, 2); counted only if the sums left any score out."""
    if bool((sums[:, 4] + sums[:, 9] < x.shape[-1]).any()):
        return census(x)[:, 1:].double()
    return torch.zeros_like(sums[:, :2])


def _anchored(gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, group: Group) -> Threshold:
    """The threshold, from the ⌈k⌉-th largest score, as in one process."""
    here = census(x)
    allowed, n_sure, n_nan = group.total(here.clone()).unbind(-1)
    allowed, n_sure, invalid = allowed.unsqueeze(-1), n_sure.unsqueeze(-1), n_nan.unsqueeze(-1) > 0
    budget = k.double()
    saturated = allowed <= budget
    crowded = ~saturated & (n_sure >= budget)
    is_open = ~(saturated | crowded | invalid)
    share = torch.where(crowded, budget / n_sure.clamp_min(1), 1.0)
    zero = torch.zeros_like(k)
    settled = Threshold(
        zero, zero, zero, is_open, saturated.to(x.dtype), share.to(x.dtype), n_sure, zero, invalid
    )
    if not bool(is_open.any()):
        return settled

    rank = torch.where(is_open, budget.ceil().long(), 1)
    finite = x if not bool(here[:, 2].any()) else torch.where(x.isnan(), -math.inf, x)
    found = order_statistic(finite, rank, here[:, :1], allowed, group)
    tied_on = ~is_open | (found.above + found.equal >= budget.floor() + 1)
    next_best = torch.where(tied_on, found.value, found.next_here)
    next_best = group.largest(next_best)
    if bool((~tied_on & (next_best == -math.inf)).any()):  # none of what was counted is below
        next_best = torch.where(tied_on, found.value, next_largest(finite, found, group))
    anchor, next_best = (torch.where(is_open, value, 0.0) for value in (found.value, next_best))

    k_left = torch.where(is_open, budget - n_sure, 1.0)
    n_strictly = found.above - n_sure
    ties_below, tied = tie_share(k_left, n_strictly, n_strictly + found.equal)
    gap = difference(anchor, next_best, temperature).clamp(0, gate.far).double()
    low, high = bracket(gate, k_left, (allowed - n_sure).double(), gap)
    search = started(gate, low, high, tied)
    rows = Rows(gate, anchor, temperature, ties_below, k_left)
    sums_at = local_sums(rows, finite)
    for _ in range(gate.steps[x.dtype == torch.float64]):
        offset = torch.where(is_open, search.offset, 0).to(x.dtype)
        sums = row_sums(rows, group.total(sums_at(offset, zero)))
        search, done = advanced(gate, search, sums, k_left, torch.finfo(x.dtype).eps)
        if bool((done | ~is_open).all()):  # by the same sums: the same in all processes
            break
    offset = torch.where(is_open, search.offset, 0).to(x.dtype)
    fine = zero
    if gate.reach < math.inf:
        fine = _refinement(rows, is_open, offset, sums_at, group)
    return settled._replace(anchor=anchor, offset=offset, fine=fine, next_best=next_best)


def _refinement(rows: Rows, is_open: Tensor, offset: Tensor, sums_at: LocalSums, group: Group) -> Tensor:
    """What to subtract from z + e: digits that the offset could not hold, for gates that reach 0 and 1."""
    resolution = 8 * torch.finfo(offset.dtype).eps * offset.abs()
    fine = torch.zeros_like(offset)
    for _ in range(2):
        inside, slope, *left = row_sums(rows, group.total(sums_at(offset, fine))).first
        step = ((inside - left[0]) / slope).to(offset.dtype)
        accepted = is_open & (step.abs() <= resolution)
        fine = torch.where(accepted, fine + step, fine)  # NaN: nothing is between 0 and 1
    return fine
