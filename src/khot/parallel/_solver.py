r"""The threshold of a row that several processes hold.

What is solved, and why, is said in ``khot.relaxations.threshold._solver``: y = F(z + e), z = (x − m)/τ, the
anchor m the ⌈k⌉-th largest score, and e the root of P = Q, two sums over the row. Each process sums over its
part, in float64, the sums of all processes are added (8 numbers a row and step), and all take the same step
(``khot.relaxations.threshold._root``). No score is sent.

A long row is solved first by every so many-th of its scores, which costs rounds but next to no work; from
there one or two sums over all of them are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.parallel._group import Group
from khot.parallel._order_statistic import census, next_largest, order_statistic
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._root import RowSums, Search, advanced, bracket, started, tie_share

__all__ = ["Threshold", "blocks", "distances", "solve"]

_BLOCK = 1 << 16  # entries in the cache at a time
_LONG = 1 << 18  # from here on a row is first solved by a part of its scores
_FEW = 1 << 14
_ENOUGH = 64  # of this part, on either side of the threshold
_COARSE = 1e-3  # the rounding that this part is solved to


class Threshold(NamedTuple):
    """What the weights of a row are made of, each (rows, 1) and the same in all processes.

    The weight of a finite score is F(z + offset − fine) if the row ``is_open``, else ``rest``; that of +inf
    is ``sure``, and that of −inf 0. A row with a NaN is ``invalid``. ``next_best`` is the largest score that
    a whole k leaves out.
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


class _Rows(NamedTuple):
    """What all processes know of their rows before the search, each (rows, 1).

    ``k_left`` is the budget of the finite scores, and ``excess`` how many more than that are above the
    anchor.
    """

    gate: Gate
    anchor: Tensor
    temperature: Tensor
    is_open: Tensor
    ties_below: Tensor
    k_left: Tensor
    excess: Tensor


LocalSums = Callable[[Tensor, Tensor], Tensor]


def solve(gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n: int, group: Group) -> Threshold:
    """The thresholds of rows of which this process has ``x`` (rows, here), for budgets ``k`` (rows, 1).

    Args:
        gate: F.
        x: float32 or float64, −inf where excluded.
        k: budgets of the whole rows, in the dtype of x.
        temperature: > 0, (rows, 1).
        n: the length of a whole row.
        group: the processes.
    """
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
    excess = torch.where(ties_below, n_strictly, n_strictly + found.equal) - k_left
    gap = _difference(anchor, next_best, temperature).clamp(0, gate.far).double()
    low, high = bracket(gate, k_left, (allowed - n_sure).double(), gap)
    search = started(gate, low, high, tied)
    rows = _Rows(gate, anchor, temperature, is_open, ties_below, k_left, excess)
    every = max(1, n // (_FEW * group.size))
    if n >= _LONG and bool((torch.minimum(k_left, allowed - n_sure - k_left) >= _ENOUGH * every).all()):
        thinned = _scaled(_local_sums(rows, x[:, ::every].contiguous()), every)
        coarse = _searched(rows, search, thinned, group, x.dtype, _COARSE)
        search = search._replace(offset=coarse.offset.clamp(search.low, search.high))
    local_sums = _local_sums(rows, x)
    search = _searched(rows, search, local_sums, group, x.dtype, torch.finfo(x.dtype).eps)
    offset = torch.where(is_open, search.offset, 0).to(x.dtype)
    fine = torch.zeros_like(offset)
    if gate.reach < math.inf:
        fine = _refinement(rows, offset, local_sums, group)
    return settled._replace(anchor=anchor, offset=offset, fine=fine, next_best=next_best)


def distances(gate: Gate, x: Tensor, temperature: Tensor, at: Threshold) -> Tensor:
    """z of scores (rows, m), finite also where it does not count."""
    z = torch.where(x.isfinite(), _difference(x, at.anchor, temperature), 0)
    return z.clamp(-gate.far, gate.far)


def blocks(rows: int, columns: int) -> list[tuple[slice, list[slice]]]:
    """Parts of a matrix that fit the cache: groups of rows, and the columns that each is gone through by."""
    width = max(1, min(columns, _BLOCK))
    height = max(1, _BLOCK // width)
    parts = [slice(j, min(j + width, columns)) for j in range(0, columns, width)]
    return [(slice(i, min(i + height, rows)), parts) for i in range(0, rows, height)]


def _difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also where a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def _local_sums(rows: _Rows, x: Tensor) -> LocalSums:
    """The sums of the terms over this process's part, below the anchor and above it, for any offset."""
    gate = rows.gate
    if gate.kernel in ("logistic", "laplace", "sparse") and gate.norm == 2 and cpu.usable(x):
        kernel = gate.kernel

        def by_kernel(offset: Tensor, fine: Tensor) -> Tensor:
            return cpu.gate_sums(kernel, x, rows.anchor, rows.temperature, offset, fine, rows.ties_below)

        return by_kernel

    def portable(offset: Tensor, fine: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], 8, dtype=torch.float64, device=x.device)
        for here, parts in blocks(*x.shape):
            anchor, temperature, ties_below = rows.anchor[here], rows.temperature[here], rows.ties_below[here]
            for columns in parts:
                mine = x[here, columns]
                z = _difference(mine, anchor, temperature).clamp(-gate.far, gate.far)
                above = torch.where(ties_below, z > 0, z >= 0)
                active = mine.isfinite()
                terms = _terms(gate, z + offset[here] - fine[here], above)
                sides = [
                    torch.where(side, term, 0) for side in (active & ~above, active & above) for term in terms
                ]
                total[here] += torch.stack([term.sum(-1) for term in sides], -1)
        return total

    return portable


def _scaled(local_sums: LocalSums, factor: float) -> LocalSums:
    return lambda offset, fine: local_sums(offset, fine) * factor


def _terms(gate: Gate, a: Tensor, above: Tensor) -> list[Tensor]:
    """What is summed: the distance to the end and its derivatives; or the distance, and what of 0 < F < 1 a
    gate's own step needs, with the number of those at 1."""
    distance, first, second = gate.distance(a, above)
    if gate.reach == math.inf:
        nothing = torch.zeros_like(a)
        return [distance, first, nothing if second is None else second, nothing]
    y = gate.weights(a)
    slope = gate.slope(gate.state(a))
    return [distance, torch.where(slope > 0, y, 0), slope, (y >= 1).to(a.dtype)]


def _searched(
    rows: _Rows, search: Search, local_sums: LocalSums, group: Group, dtype: torch.dtype, eps: float
) -> Search:
    for _ in range(rows.gate.steps[dtype == torch.float64]):
        offset = torch.where(rows.is_open, search.offset, 0).to(dtype)
        sums = _row_sums(rows, group.total(local_sums(offset, torch.zeros_like(offset))))
        search, done = advanced(rows.gate, search, sums, rows.k_left, eps)
        if bool((done | ~rows.is_open).all()):  # by the same sums: the same in all processes
            break
    return search


def _row_sums(rows: _Rows, sums: Tensor) -> RowSums:
    """P and Q, and what else a step needs, from the sums over all processes."""
    below, above = sums.chunk(2, -1)
    p, q = below[:, :1] + rows.excess.clamp_min(0), above[:, :1] + (-rows.excess).clamp_min(0)
    if rows.gate.reach < math.inf:
        inside, slope, full = (below + above)[:, 1:].unsqueeze(1).unbind(-1)
        return RowSums(p, q, (inside, slope, rows.k_left - full), None)
    return RowSums(p, q, (below[:, 1:2], above[:, 1:2]), (below[:, 2:3], above[:, 2:3]))


def _refinement(rows: _Rows, offset: Tensor, local_sums: LocalSums, group: Group) -> Tensor:
    """What is to be taken from z + e: digits that the offset could not hold, if weights reach 0 and 1."""
    resolution = 8 * torch.finfo(offset.dtype).eps * offset.abs()
    fine = torch.zeros_like(offset)
    for _ in range(2):
        inside, slope, *left = _row_sums(rows, group.total(local_sums(offset, fine))).first
        step = ((inside - left[0]) / slope).to(offset.dtype)
        accepted = rows.is_open & (step.abs() <= resolution)
        fine = torch.where(accepted, fine + step, fine)  # NaN: nothing is between 0 and 1
    return fine
