r"""The threshold of a row that several processes hold.

What is solved, and why so, is said in ``khot.relaxations.threshold._solver``: y = F(z + e), z = (x − m)/τ, the
anchor m the ⌈k⌉-th largest score, and e the root of P = Q, two sums over the row. Each process sums over its
part, in float64, the sums of all processes are added (6 numbers a row and step), and all take the same step
(``khot.relaxations.threshold._root``). No score is sent.

A long row is solved first by every so many-th of its scores, which costs rounds but next to no work; from there
one or two sums over all of them are enough.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.parallel._group import Group
from khot.parallel._order_statistic import next_largest, order_statistic
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._root import RowSums, Search, advanced, bracket, started, tie_share

__all__ = ["Threshold", "blocks", "distances", "solve"]

_BLOCK = 1 << 16  # entries in the cache at a time
_LONG = 1 << 18  # from here on a row is first solved by a part of its scores
_FEW = 1 << 14
_COARSE = 1e-3  # the rounding that this part is solved to


class Threshold(NamedTuple):
    """What the weights of a row are made of, each (rows, 1) and the same in all processes.

    The weight of a finite score is F(z + offset − fine) if the row ``is_open``, else ``rest``; that of +inf is
    ``sure``, and that of −inf 0. A row with a NaN is ``invalid``. ``next_best`` is the largest score that a whole
    k leaves out.
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


class _Part(NamedTuple):
    """z of this process's part of a row: those below the anchor in their places, −inf elsewhere; those above
    as a list with their rows, or, of one row, as a row. A part of a part counts ``scale`` times."""

    below: Tensor
    above: Tensor
    rows: Tensor | None
    scale_below: float = 1.0
    scale_above: float = 1.0


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
    here = _counts(x)
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
    below = next_largest(finite, found, group)
    next_best = torch.where(found.above + found.equal >= budget.floor() + 1, found.value, below)
    anchor, next_best = (torch.where(is_open, value, 0.0) for value in (found.value, next_best))

    k_left = torch.where(is_open, budget - n_sure, 1.0)
    n_strictly = found.above - n_sure
    ties_below, tied = tie_share(k_left, n_strictly, n_strictly + found.equal)
    excess = torch.where(ties_below, n_strictly, n_strictly + found.equal) - k_left
    gap = _difference(anchor, next_best, temperature).clamp(0, gate.far).double()
    low, high = bracket(gate, k_left, (allowed - n_sure).double(), gap)
    search = started(gate, low, high, tied)
    part = _part(gate, x, anchor, temperature, is_open, ties_below)
    if n >= _LONG:
        coarse = _searched(gate, search, _thinned(part), k_left, excess, group, _COARSE)
        search = search._replace(offset=coarse.offset.clamp(search.low, search.high))
    search = _searched(gate, search, part, k_left, excess, group, torch.finfo(x.dtype).eps)
    offset = torch.where(is_open, search.offset, 0).to(x.dtype)
    fine = torch.zeros_like(offset)
    if gate.reach < math.inf:
        fine = _refinement(gate, part, offset, k_left, group, is_open)
    return settled._replace(anchor=anchor, offset=offset, fine=fine, next_best=next_best)


def distances(gate: Gate, x: Tensor, temperature: Tensor, at: Threshold) -> Tensor:
    """z of scores (rows, m), finite also where it does not count."""
    z = torch.where(x.isfinite(), _difference(x, at.anchor, temperature), 0)
    return z.clamp(-gate.far, gate.far)


def blocks(rows: int, columns: int) -> list[tuple[slice, slice]]:
    """Parts of a matrix that fit the cache."""
    width = max(1, min(columns, _BLOCK))
    height = max(1, _BLOCK // width)
    return [
        (slice(i, min(i + height, rows)), slice(j, min(j + width, columns)))
        for i in range(0, rows, height)
        for j in range(0, columns, width)
    ]


def _counts(x: Tensor) -> Tensor:
    """How many entries are allowed, at +inf, and NaN: int64 (rows, 3)."""
    rows, n = x.shape
    counts = torch.zeros(rows, 3, dtype=torch.int64, device=x.device)
    counts[:, 0] = n
    if not n:
        return counts
    least, most = x.aminmax(dim=-1)
    if bool(((least > -math.inf) & (most < math.inf)).all()):  # not with a NaN either
        return counts
    counts[:, 0] -= torch.count_nonzero(x == -math.inf, dim=-1)
    counts[:, 1] = torch.count_nonzero(x == math.inf, dim=-1)
    counts[:, 2] = torch.count_nonzero(x.isnan(), dim=-1)
    return counts


def _difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also where a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def _part(
    gate: Gate, x: Tensor, anchor: Tensor, temperature: Tensor, is_open: Tensor, ties_below: Tensor
) -> _Part:
    below = torch.empty_like(x)
    lists: list[tuple[Tensor, Tensor]] = []
    for rows, columns in blocks(*x.shape):
        mine = x[rows, columns]
        z = _difference(mine, anchor[rows], temperature[rows]).clamp(-gate.far, gate.far)
        active = is_open[rows] & mine.isfinite()
        above = active & torch.where(ties_below[rows], z > 0, z >= 0)
        at = above.nonzero()
        lists.append((at[:, 0] + rows.start, z[above]))
        below[rows, columns] = torch.where(active & ~above, z, -math.inf)
    if x.shape[0] == 1:
        found = torch.cat([z for _, z in lists]) if lists else x.new_empty(0)
        return _Part(below, found.unsqueeze(0), None)
    owners = torch.cat([each for each, _ in lists]) if lists else torch.empty(0, dtype=torch.long)
    return _Part(below, torch.cat([z for _, z in lists]) if lists else x.new_empty(0), owners.to(x.device))


def _thinned(part: _Part) -> _Part:
    every = max(1, part.below.shape[-1] // _FEW)
    below = part.below[:, ::every].contiguous()
    if part.rows is not None:
        return _Part(below, part.above, part.rows, every)
    of_above = max(1, part.above.shape[-1] // _FEW)
    return _Part(below, part.above[:, ::of_above].contiguous(), None, every, of_above)


def _searched(
    gate: Gate, search: Search, part: _Part, k: Tensor, excess: Tensor, group: Group, eps: float
) -> Search:
    steps = gate.steps[part.below.dtype == torch.float64]
    for _ in range(steps):
        sums = _sums(gate, part, search.offset, k, excess, group)
        search, done = advanced(gate, search, sums, k, eps)
        if bool(done.all()):  # of the same sums: the same in all processes
            break
    return search


def _sums(
    gate: Gate, part: _Part, offset: Tensor, k: Tensor, excess: Tensor, group: Group, fine: Tensor | None = None
) -> RowSums:
    """P and Q at an offset, and what else a step needs: one message."""
    at = offset.to(part.below.dtype)
    fine = torch.zeros_like(at) if fine is None else fine
    below = _total(gate, part.below, at, fine, above=False) * part.scale_below
    if part.rows is None:
        above = _total(gate, part.above, at, fine, above=True)
    else:
        a = part.above + at[part.rows, 0] - fine[part.rows, 0]
        terms = torch.stack(_terms(gate, a, above=True), -1).double()
        above = torch.zeros_like(below).index_add_(0, part.rows, terms)
    below, above = group.total(torch.cat([below, above * part.scale_above], -1)).chunk(2, -1)
    p, q = below[:, :1] + excess.clamp_min(0), above[:, :1] + (-excess).clamp_min(0)
    if gate.reach < math.inf:
        inside, slope, full = (below + above)[:, 1:].split(1, -1)
        return RowSums(p, q, (inside, slope, k - full), None)
    return RowSums(p, q, (below[:, 1:2], above[:, 1:2]), (below[:, 2:3], above[:, 2:3]))


def _terms(gate: Gate, a: Tensor, *, above: bool) -> list[Tensor]:
    """What is summed: the distance to the end and its derivatives; or the distance, and what of 0 < F < 1 a
    gate's own step needs, with the number of those at 1."""
    distance, first, second = gate.distance(a, torch.tensor(above, device=a.device))
    if gate.reach == math.inf:
        return [distance, first, torch.zeros_like(a) if second is None else second]
    y = gate.weights(a)
    slope = gate.slope(gate.state(a))
    return [distance, torch.where(slope > 0, y, 0), slope, (y >= 1).to(a.dtype)]


def _total(gate: Gate, z: Tensor, offset: Tensor, fine: Tensor, *, above: bool) -> Tensor:
    """Sums of the terms over rows (rows, m), float64."""
    count = 3 if gate.reach == math.inf else 4
    total = torch.zeros(z.shape[0], count, dtype=torch.float64, device=z.device)
    for rows, columns in blocks(*z.shape):
        a = z[rows, columns] + offset[rows]
        if gate.reach < math.inf:
            a = a - fine[rows]
        terms = _terms(gate, a, above=above)
        total[rows] += torch.stack([term.sum(-1) for term in terms], -1)
    return total


def _refinement(gate: Gate, part: _Part, offset: Tensor, k: Tensor, group: Group, is_open: Tensor) -> Tensor:
    """What is to be taken from z + e: digits that the offset could not hold, if weights reach 0 and 1."""
    resolution = 8 * torch.finfo(offset.dtype).eps * offset.abs()
    fine = torch.zeros_like(offset)
    for _ in range(2):
        sums = _sums(gate, part, offset, k, torch.zeros_like(k), group, fine)
        inside, slope, left = sums.first
        step = ((inside - left) / slope).to(offset.dtype)
        fine = torch.where(is_open & (step.abs() <= resolution), fine + step, fine)  # NaN: nothing in (0, 1)
    return fine
