r"""The r-th largest value of rows that several processes hold, by counting: no score leaves its process.

A process with m of the n entries finds its own ⌈r·m/n⌉-th largest. The r-th largest of the row lies between
the smallest and the largest of these values, which are close together if the shards are alike. For long rows
a sample of the entries gives a narrower bracket, and the counts show if it is wrong. The entries in the
bracket are counted in 32 classes of neighbouring floating-point numbers (1024 in a long row). The class that
holds the value is divided again, until it is one number: 2 or 3 rounds for float32, at most 7; 8 or 9 for
float64, at most 13.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.parallel._group import Group
from khot.relaxations import hard_topk

__all__ = ["OrderStatistic", "census", "next_largest", "order_statistic"]

_CLASSES = 32
_LONG = 1 << 18  # from here on a bracket is guessed first, and there are
_CLASSES_OF_LONG = 1024
_FEW = 1 << 14


class OrderStatistic(NamedTuple):
    """A value (rows, 1), and how many entries of the whole row are above it and equal to it.

    ``above_here`` and ``equal_here`` count the entries of this process alone. ``next_here`` is the largest
    entry below the value that this process has counted, or −inf. Its maximum over the processes, unless −inf,
    is the next value of the row.
    """

    value: Tensor
    above: Tensor
    equal: Tensor
    above_here: Tensor
    equal_here: Tensor
    next_here: Tensor


def census(x: Tensor) -> Tensor:
    """The numbers of entries that are allowed, +inf, and NaN: int64 (rows, 3)."""
    rows, n = x.shape
    counts = torch.zeros(rows, 3, dtype=torch.int64, device=x.device)
    counts[:, 0] = n
    if not n:
        return counts
    if bool(x.sum(-1).isfinite().all()):  # all are; the cheapest of all tests
        return counts
    counts[:, 0] -= _counted_true(x == -math.inf)
    if not bool(x.max() < math.inf):  # else there is only what is excluded
        counts[:, 1] = _counted_true(x == math.inf)
        counts[:, 2] = _counted_true(x.isnan())
    return counts


def _counted_true(which: Tensor) -> Tensor:
    """The count of each row; counting along a dimension takes twenty times as long as counting everything."""
    return torch.count_nonzero(which) if len(which) == 1 else torch.count_nonzero(which, dim=-1)


def order_statistic(x: Tensor, rank: Tensor, n_here: Tensor, n: Tensor, group: Group) -> OrderStatistic:
    """The rank-th largest entry of each row, 1 ≤ rank ≤ n; any value in a row with another rank.

    Args:
        x: this process's shard (rows, here), float32 or float64, −inf where excluded, without NaN.
        rank: int64 (rows, 1), the same in all processes.
        n_here: how many entries of this shard are allowed, (rows, 1).
        n: how many entries are allowed in all processes, (rows, 1).
        group: the processes.
    """
    if bool((n >= _LONG).any()):
        found = _counted(x, rank, *_guess(x, rank, n, group), group, n)
        if found is not None:
            return found
    found = _counted(x, rank, *_between(x, rank, n_here, n, group), group, None)
    assert found is not None
    return found


def _counted(
    x: Tensor, rank: Tensor, low: Tensor, high: Tensor, group: Group, n: Tensor | None
) -> OrderStatistic | None:
    """The result, if it lies between low and high; None if these were guessed (n is given) and are wrong."""
    above_here, rows, values = _within(x, low, high)
    keys = _keys(values)
    candidates = rows, keys
    # A bracket that is empty (no process has any entry) is one number wide.
    bottom = _keys(low)
    top = torch.maximum(_keys(high), bottom)
    n_classes = _CLASSES if n is None else _CLASSES_OF_LONG
    above: Tensor | None = None
    while True:
        shift = _shift(bottom, top, n_classes)
        base = bottom >> shift
        classes = rows * n_classes + ((keys >> shift[rows, 0]) - base[rows, 0])
        counts = torch.bincount(classes, minlength=x.shape[0] * n_classes).view(-1, n_classes)
        if above is None:
            both = group.total(torch.cat([above_here, counts], -1))
            above, counts = both[:, :1], both[:, 1:]
            inside = (above < rank) & (rank <= above + counts.sum(-1, keepdim=True))
            if n is not None and not bool((inside | (rank > n)).all()):
                return None
        else:
            counts = group.total(counts)
        from_top = counts.flip(-1).cumsum(-1).flip(-1)
        # The highest class with enough at or above it.
        chosen = ((above + from_top >= rank).sum(-1, keepdim=True) - 1).clamp_min(0)
        equal = counts.gather(-1, chosen)
        above = above + from_top.gather(-1, chosen) - equal
        bottom, top = (
            torch.maximum(bottom, (base + chosen) << shift),
            torch.minimum(top, ((base + chosen + 1) << shift) - 1),
        )
        if not bool((bottom < top).any()):  # the same in all processes
            break
        inside = (keys >= bottom[rows, 0]) & (keys <= top[rows, 0])
        rows, keys = rows[inside], keys[inside]
    rows, keys = candidates
    found = bottom[rows, 0]
    above_here = above_here + _in_rows(rows[keys > found], x)
    equal_here = _in_rows(rows[keys == found], x)
    next_here = _next(rows, keys, bottom, x.dtype)
    return OrderStatistic(_values(bottom, x.dtype), above, equal, above_here, equal_here, next_here)


def _within(x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many entries of each row are above ``high``; the rows and values of those from there to ``low``."""
    every = torch.arange(x.shape[0], device=x.device)
    if cpu.usable(x):
        above, between, values = cpu.entries_between(x, low, high)
        return above, every.repeat_interleave(between.squeeze(-1)), values
    beyond = x > high
    rows, columns = (beyond ^ (x >= low)).nonzero().unbind(-1)
    return beyond.sum(-1, keepdim=True), rows, x[rows, columns]


def _in_rows(rows: Tensor, x: Tensor) -> Tensor:
    """How often each row occurs, (rows, 1)."""
    return torch.bincount(rows, minlength=x.shape[0]).unsqueeze(-1)


def next_largest(x: Tensor, found: OrderStatistic, group: Group) -> Tensor:
    """The largest value below the one found, (rows, 1); −inf if there is none."""
    none = x.new_full((x.shape[0], 1), -math.inf)
    here = torch.where(x < found.value, x, none).amax(-1, keepdim=True) if x.shape[-1] else none
    return group.largest(here)


def _next(rows: Tensor, keys: Tensor, bottom: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest of the keys of each row that is below its bottom, as a value."""
    below = keys < bottom[rows, 0]
    none = _keys(torch.full_like(bottom, -math.inf, dtype=dtype))
    best = none.squeeze(-1).scatter_reduce(0, rows[below], keys[below], "amax")
    return _values(best.unsqueeze(-1), dtype)


def _guess(x: Tensor, rank: Tensor, n: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """A bracket from every m-th entry; right if the order of the entries is arbitrary."""
    lowest = torch.finfo(x.dtype).min
    low, high = (torch.full_like(rank, value, dtype=x.dtype) for value in (-math.inf, -math.inf))
    few = x[:, :: max(1, x.shape[-1] // _FEW)]
    if few.shape[-1]:
        few = few.sort(-1, descending=True).values
        n_few = torch.count_nonzero(few > -math.inf, dim=-1).unsqueeze(-1)
        expected = rank.double() / n.clamp_min(1) * n_few
        apart = 5 * expected.clamp_min(1).sqrt() + 2
        first, last = (expected - apart).floor().long(), (expected + apart).ceil().long()
        high = torch.where(first < 0, math.inf, few.gather(-1, first.clamp(0, few.shape[-1] - 1)))
        low = torch.where(last < n_few, few.gather(-1, last.clamp(0, few.shape[-1] - 1)), lowest)
        high, low = (torch.where(n_few > 0, value, -math.inf) for value in (high, low))
        low = torch.where(n_few > 0, -low, -math.inf)
    both = group.largest(torch.cat([high, low], -1))
    return -both[:, 1:], both[:, :1]


def _between(x: Tensor, rank: Tensor, n_here: Tensor, n: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Two values of the row that bracket the rank-th largest; it may equal either."""
    rank_here = (rank * n_here + n - 1) // n.clamp_min(1)
    rank_here = torch.where((rank >= 1) & (n_here > 0), rank_here.clamp_max(n_here), 0)
    none = x.new_full((x.shape[0], 1), math.inf)
    if x.shape[-1]:
        chosen = hard_topk(x, rank_here.squeeze(-1)) > 0
        none = torch.where(chosen, x, math.inf).amin(-1, keepdim=True)
    absent = rank_here == 0
    mine = torch.cat([torch.where(absent, -math.inf, none), torch.where(absent, -math.inf, -none)], -1)
    both = group.largest(mine)
    high, low = both[:, :1], -both[:, 1:]
    empty = low > high
    return torch.where(empty, 0, low), torch.where(empty, 0, high)


def _keys(x: Tensor) -> Tensor:
    """int64 numbers in the order of the floats; −0 is 0."""
    x = x + 0.0
    bits = x.view(torch.int32 if x.dtype == torch.float32 else torch.int64).long()
    largest = 0x7FFFFFFF if x.dtype == torch.float32 else 0x7FFFFFFFFFFFFFFF
    return torch.where(bits < 0, bits ^ largest, bits)


def _values(keys: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float32:
        return torch.where(keys < 0, keys ^ 0x7FFFFFFF, keys).int().view(dtype)
    return torch.where(keys < 0, keys ^ 0x7FFFFFFFFFFFFFFF, keys).view(dtype)


def _shift(bottom: Tensor, top: Tensor, n_classes: int) -> Tensor:
    """By how many bits to shift the numbers from bottom to top, so that they fall into ``n_classes``."""
    shift = ((top >> 1) - (bottom >> 1) >= n_classes // 2).long()  # top − bottom itself may overflow
    while bool((wide := (shift > 0) & ((top >> shift) - (bottom >> shift) >= n_classes)).any()):
        shift = shift + wide
    return shift
