r"""Tree pivotal sampling of rows that several processes hold, with one tree over the whole row.

The tree is that of ``khot.designs.pivotal._duels`` over the indices of the whole row, so it does not depend
on the shards. A process builds every node whose leaves it holds. At most two of these per level have a
sibling in another process: its *edges*. All processes exchange their edges, at most 2·log₂ n nodes each, in
one message. Then each builds the few nodes above them, decides their duels with the same uniform variables,
and goes down its own part alone.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from khot.designs.pivotal._duels import Level, lowered, raised
from khot.parallel._group import Group
from khot.parallel._uniforms import numbered_uniforms
from khot.relaxations._chunks import at_once

__all__ = ["draw_tree"]


class _Top(NamedTuple):
    """The numbers of the edges of one level, and of its nodes that no process holds whole, in order.

    ``parents`` are the numbers of the nodes above them. ``left`` and ``right`` are the positions of their
    children in ``numbers`` (one past the end for a missing child). ``level`` holds the decisions at the
    parents.
    """

    numbers: list[int]
    parents: list[int]
    left: list[int]
    right: list[int]
    level: Level


def draw_tree(inclusion: Tensor, k: Tensor, sizes: list[int], draws: int, seed: int, group: Group) -> Tensor:
    """Draw booleans (draws, rows, here), k of them True in each whole row.

    Args:
        inclusion: π of this process's part (rows, here), float64, with sum k over the whole row.
        k: int64 (rows, 1).
        sizes: the lengths of the parts of all processes.
        draws: how many.
        seed: of the uniform variables, the same in all processes.
        group: the processes.
    """
    height = max(0, sum(sizes) - 1).bit_length()
    starts = [0, *accumulate(sizes)]
    spans = [_spans(start, start + size, height) for start, size in zip(starts, sizes, strict=False)]
    certain = inclusion >= 1
    rho, floor = torch.where(certain, 0.0, inclusion), certain.long()
    own: list[Level] = []
    rows = len(inclusion)
    if rows == 0:
        return certain.new_zeros(draws, *inclusion.shape)
    edges = torch.zeros(rows, height + 1, 2, 2, dtype=torch.float64, device=inclusion.device)
    for depth, (first, last) in enumerate(spans[group.rank]):
        for side, node in enumerate(_edges(first, last, depth, height)):
            if node is not None:
                edges[:, depth, side, 0] = rho[:, node - first]
                edges[:, depth, side, 1] = floor[:, node - first].double()
        inner = slice(first % 2, last - first - (last % 2))
        if depth < height:
            rho, floor, level = raised(rho[:, inner], floor[:, inner])
            own.append(level)
    tops, n_floor = _tops(group.each(edges), spans, height)
    drawn = torch.empty(draws, *inclusion.shape, dtype=torch.bool, device=inclusion.device)
    part = at_once(max(1, inclusion.numel()))
    for begin in range(0, draws, part):
        count = min(part, draws - begin)
        streams = torch.arange(begin * rows, (begin + count) * rows, device=inclusion.device)
        streams = streams.view(-1, 1)
        root = (k - n_floor > 0).expand(count, rows, 1)
        z = _down_top(tops, root, spans[group.rank], height, seed, streams)
        drawn[begin : begin + count] = _down_own(own, z, spans[group.rank], height, seed, streams, certain)
    return drawn


def _spans(first: int, last: int, height: int) -> list[tuple[int, int]]:
    """From which to which node a process has all leaves, level by level, as long as there are any."""
    found: list[tuple[int, int]] = []
    while first < last and len(found) <= height:
        found.append((first, last))
        first, last = (first + 1) // 2, last // 2
    return found


def _edges(first: int, last: int, depth: int, height: int) -> tuple[int | None, int | None]:
    """The nodes from first to last whose sibling is not among them; the root has none."""
    if depth == height:
        return first, None
    return first if first % 2 else None, last - 1 if last % 2 else None


def _tops(everyone: Tensor, spans: list[list[tuple[int, int]]], height: int) -> tuple[list[_Top], Tensor]:
    """The levels above the edges, lowest first, and the floor of the root (rows, 1)."""
    numbers: list[int] = []
    rho = floor = everyone.new_empty(everyone.shape[1], 0)
    tops: list[_Top] = []
    for depth in range(height + 1):
        places = list(numbers)
        values = [rho, floor]
        for rank, of_rank in enumerate(spans):
            if depth < len(of_rank):
                for side, node in enumerate(_edges(*of_rank[depth], depth, height)):
                    if node is not None:
                        places.append(node)
                        edge = everyone[rank, :, depth, side]
                        values = [
                            torch.cat([v, e], -1)
                            for v, e in zip(values, edge.unsqueeze(1).unbind(-1), strict=True)
                        ]
        order = sorted(range(len(places)), key=places.__getitem__)
        numbers, (rho, floor) = [places[i] for i in order], (v[:, order] for v in values)
        if depth == height:
            return tops, floor.long()
        at = {number: i for i, number in enumerate(numbers)}
        parents = sorted({number // 2 for number in numbers})
        left, right = ([at.get(2 * node + side, len(numbers)) for node in parents] for side in (0, 1))
        pairs = [i for pair in zip(left, right, strict=True) for i in pair]
        rho, floor = (torch.nn.functional.pad(value, (0, 1))[:, pairs] for value in (rho, floor))
        rho, floor, level = raised(rho, floor)
        tops.append(_Top(numbers, parents, left, right, level))
        numbers = parents
    raise AssertionError("a tree has a root")


def _down_top(
    tops: list[_Top],
    root: Tensor,
    span: list[tuple[int, int]],
    height: int,
    seed: int,
    streams: Tensor,
) -> dict[int, Tensor]:
    """z of this process's edges: of each node by its number in the heap, (count, rows)."""
    found: dict[int, Tensor] = {}
    wanted = {
        _heap(node, depth, height)
        for depth, (first, last) in enumerate(span)
        for node in _edges(first, last, depth, height)
        if node is not None
    }
    z, numbers = root, [0]
    for depth in range(height, -1, -1):
        for i, node in enumerate(numbers):
            if _heap(node, depth, height) in wanted:
                found[_heap(node, depth, height)] = z[..., i]
        if depth == 0:
            break
        top = tops[depth - 1]
        at = {node: i for i, node in enumerate(numbers)}
        z = z[..., [at[node] for node in top.parents]]
        both = lowered(z, top.level, _left_wins(top.level, top.parents, depth, height, seed, streams))
        children = [(side, i) for i in range(len(top.parents)) for side in (top.left[i], top.right[i])]
        source = {place: j for j, (place, _) in enumerate(children)}
        z, numbers = both[..., [source[i] for i in range(len(top.numbers))]], top.numbers
    return found


def _down_own(
    own: list[Level],
    edges: dict[int, Tensor],
    span: list[tuple[int, int]],
    height: int,
    seed: int,
    streams: Tensor,
    certain: Tensor,
) -> Tensor:
    """The units of this process, from its edges down."""
    count, rows = len(streams) // max(1, len(certain)), len(certain)
    z = torch.empty(count, rows, 0, dtype=torch.bool, device=certain.device)
    for depth in range(len(span) - 1, -1, -1):
        first, last = span[depth]
        if depth < height and z.shape[-1]:
            nodes = range((first + 1) // 2, last // 2)
            z = lowered(z, own[depth], _left_wins(own[depth], nodes, depth + 1, height, seed, streams))
        left, right = _edges(first, last, depth, height)
        parts = [edges[_heap(left, depth, height)].unsqueeze(-1)] if left is not None else []
        parts.append(z)
        if right is not None:
            parts.append(edges[_heap(right, depth, height)].unsqueeze(-1))
        z = torch.cat(parts, -1)
    return z | certain


def _left_wins(
    level: Level, nodes: list[int] | range, depth: int, height: int, seed: int, streams: Tensor
) -> Tensor:
    """The duels of nodes of one level, (count, rows, nodes)."""
    if isinstance(nodes, range):
        numbers = torch.arange(nodes.start, nodes.stop, device=streams.device)
    else:
        numbers = torch.tensor(nodes, dtype=torch.long, device=streams.device)
    u = numbered_uniforms(seed, streams, numbers + ((1 << (height - depth)) - 1))
    return u.view(len(streams) // level.left.shape[0], *level.left.shape) < level.left


def _heap(node: int, depth: int, height: int) -> int:
    """Its place where the root is 0, then its children, and so on."""
    return (1 << (height - depth)) - 1 + node
