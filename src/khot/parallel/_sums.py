"""Sums over this process's shard at an offset, and the step's numbers from the sums of all processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._root import RowSums

__all__ = ["LocalSums", "Rows", "blocks", "difference", "has_kernel", "local_sums", "row_sums"]

_BLOCK = 1 << 16  # entries in the cache at a time


class Rows(NamedTuple):
    """What all processes know of the rows, each (rows, 1); ``k_left`` is the budget of the finite scores."""

    gate: Gate
    anchor: Tensor
    temperature: Tensor
    ties_below: Tensor
    k_left: Tensor


LocalSums = Callable[[Tensor, Tensor], Tensor]


def blocks(rows: int, columns: int) -> list[tuple[slice, list[slice]]]:
    """Blocks of a matrix that fit the cache: groups of rows, each with its groups of columns."""
    width = max(1, min(columns, _BLOCK))
    height = max(1, _BLOCK // width)
    parts = [slice(j, min(j + width, columns)) for j in range(0, columns, width)]
    return [(slice(i, min(i + height, rows)), parts) for i in range(0, rows, height)]


def difference(a: Tensor, b: Tensor, temperature: Tensor) -> Tensor:
    """(a − b)/τ, also if a − b overflows."""
    return (a / 2 - b / 2) / (temperature / 2)


def has_kernel(gate: Gate, x: Tensor) -> bool:
    """Whether there are compiled kernels for these scores."""
    return gate.kernel in ("logistic", "laplace", "sparse") and gate.norm == 2 and cpu.usable(x)


def local_sums(rows: Rows, x: Tensor) -> LocalSums:
    """A function of the offset: the sums of the terms over this shard, below and above the anchor."""
    gate = rows.gate
    if has_kernel(gate, x) and (kernel := gate.kernel) is not None:

        def by_kernel(offset: Tensor, fine: Tensor) -> Tensor:
            shard = cpu.GateShard(kernel, x, rows.anchor, rows.temperature, offset, fine)
            return cpu.gate_sums(shard, rows.ties_below)

        return by_kernel

    def portable(offset: Tensor, fine: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], 10, dtype=torch.float64, device=x.device)
        for here, parts in blocks(*x.shape):
            anchor, temperature, ties_below = rows.anchor[here], rows.temperature[here], rows.ties_below[here]
            for columns in parts:
                mine = x[here, columns]
                z = difference(mine, anchor, temperature).clamp(-gate.far, gate.far)
                above = torch.where(ties_below, z > 0, z >= 0)
                active = mine.isfinite()
                terms = _terms(gate, z + offset[here] - fine[here], above)
                sides = [
                    torch.where(side, term, 0) for side in (active & ~above, active & above) for term in terms
                ]
                total[here] += torch.stack([term.sum(-1) for term in sides], -1)
        return total

    return portable


def _terms(gate: Gate, a: Tensor, above: Tensor) -> list[Tensor]:
    """The terms of the sums; the last is 1, to count them.

    A gate with tails has the distance to its end and two derivatives. Other gates have the distance, what
    their own step needs of the weights between 0 and 1, and the number of ones.
    """
    distance, first, second = gate.distance(a, above)
    if gate.reach == math.inf:
        nothing = torch.zeros_like(a)
        return [distance, first, nothing if second is None else second, nothing, torch.ones_like(a)]
    y = gate.weights(a)
    slope = gate.slope(gate.state(a))
    return [distance, torch.where(slope > 0, y, 0), slope, (y >= 1).to(a.dtype), torch.ones_like(a)]


def row_sums(rows: Rows, sums: Tensor) -> RowSums:
    """P, Q and whatever else a step needs, from the sums of all processes."""
    below, above = sums.chunk(2, -1)
    excess = above[:, 4:] - rows.k_left  # how many more than the budget are above the anchor
    p, q = below[:, :1] + excess.clamp_min(0), above[:, :1] + (-excess).clamp_min(0)
    if rows.gate.reach < math.inf:
        inside, slope, full = (below + above)[:, 1:4].unsqueeze(1).unbind(-1)
        return RowSums(p, q, (inside, slope, rows.k_left - full), None)
    return RowSums(p, q, (below[:, 1:2], above[:, 1:2]), (below[:, 2:3], above[:, 2:3]))
