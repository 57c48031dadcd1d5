"""The sampling designs in Triton: systematic draws, and draws by duels up a tree.

As the compiled kernels for the CPU do it (``csrc/designs.cpp``): probabilities are normalised on the way,
π + π(1 − π)·share, systematic sums are integers, and so the draws are the same for the same uniform
variables. What is known before these are is computed once for all draws of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, split, warps_of

__all__ = ["pivotal", "systematic"]


def systematic(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Ones at the units over the points u, u + 1, … on the sums; see ``khot.kernels.cpu.systematic``."""
    if order is not None:
        shuffled = probs.expand(order.shape).gather(-1, order)
        return _put_back(systematic(shuffled, k, u.unsqueeze(0)), order)
    n = probs.shape[-1]
    probs, u = probs.contiguous(), u.contiguous()
    out = probs.new_empty(*u.shape, n)
    if not out.numel():
        return out
    rows = probs.numel() // n
    with torch.cuda.device_of(probs):
        (parts, length), block = split(rows, n), _block_of(n)
        norms, counts = _norms(probs, rows, n, parts, length)
        lengths = torch.empty(rows, parts, dtype=torch.int64, device=probs.device)
        shape = {
            "PARTS": triton.next_power_of_2(parts),
            "BLOCK": block,
            "num_warps": warps_of(block),
        }
        arcs_kernel[(rows, parts)](probs, norms, counts, lengths, n, length, parts, k, **shape)
        systematic_kernel[(u.numel(), parts)](
            probs, u, norms, counts, lengths, out, rows, n, length, parts, k, **shape
        )
    return out


def pivotal(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Tree pivotal draws; see ``khot.kernels.cpu.pivotal``."""
    if order is not None:
        shuffled = probs.expand(order.shape).gather(-1, order)
        return _put_back(pivotal(shuffled, k, u.unsqueeze(0)), order)
    n, inner = probs.shape[-1], u.shape[-1]
    probs, u = probs.contiguous(), u.contiguous()
    out = probs.new_empty(*u.shape[:-1], n)
    if not out.numel():
        return out
    rows, leaves = probs.numel() // n, inner + 1
    with torch.cuda.device_of(probs):
        parts, length = split(rows, n)
        norms, _ = _norms(probs, rows, n, parts, length)
        heap = torch.empty(rows, inner + leaves, dtype=torch.float64, device=probs.device)
        floor = torch.zeros(rows, dtype=torch.int32, device=probs.device)
        block = _block_of(leaves)
        warps, blocks = warps_of(block), triton.cdiv(leaves, block)
        leaves_kernel[(rows * blocks,)](
            probs, norms, heap, floor, n, inner, parts, blocks, k,
            PARTS=triton.next_power_of_2(parts), BLOCK=block, num_warps=warps,
        )  # fmt: skip
        nodes = leaves // 2
        while nodes:
            blocks = triton.cdiv(nodes, block)
            duel_kernel[(rows * blocks,)](
                heap, floor, nodes, inner + leaves, blocks, BLOCK=block, num_warps=warps
            )
            nodes //= 2
        blocks = triton.cdiv(n, block)
        pivotal_kernel[(out.numel() // n * blocks,)](
            heap, u, floor, out, rows, n, inner, blocks, inner.bit_length(), k, BLOCK=block, num_warps=warps
        )
    return out


def _block_of(n: int) -> int:
    """Smaller than elsewhere: float64 takes twice the registers."""
    return min(block_of(n), 1024)


def _put_back(drawn: Tensor, order: Tensor) -> Tensor:
    """One draw of each row, at the places from which its units came."""
    return torch.zeros_like(drawn[0]).scatter_(-1, order, drawn[0])


def _norms(probs: Tensor, rows: int, n: int, parts: int, length: int) -> tuple[Tensor, Tensor]:
    """Of each part: Σπ and Σπ(1 − π), and how many units are certain and how many are open."""
    norms = torch.empty(rows, parts, 2, dtype=torch.float64, device=probs.device)
    counts = torch.empty(rows, parts, 2, dtype=torch.int32, device=probs.device)
    block = _block_of(n)
    norm_kernel[(rows, parts)](probs, norms, counts, n, length, BLOCK=block, num_warps=warps_of(block))
    return norms, counts


@triton.jit
def norm_kernel(probs_ptr, norms_ptr, counts_ptr, n, length, BLOCK: tl.constexpr):
    """A part of a row: what is needed to normalise it."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    end = tl.minimum(n, (part + 1) * length)
    total, room = tl.zeros((), tl.float64), tl.zeros((), tl.float64)
    certain, open_units = tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    for start in range(part * length, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.load(probs_ptr + row * n + at, mask=at < end, other=0.0).to(tl.float64)
        total += tl.sum(p, 0)
        room += tl.sum(p * (1 - p), 0)
        certain += tl.sum((p >= 1).to(tl.int32), 0)
        open_units += tl.sum(((p > 0) & (p < 1)).to(tl.int32), 0)
    place = (row * tl.num_programs(1) + part) * 2
    tl.store(norms_ptr + place, total)
    tl.store(norms_ptr + place + 1, room)
    tl.store(counts_ptr + place, certain)
    tl.store(counts_ptr + place + 1, open_units)


@triton.jit
def _share(norms_ptr, row, parts, k, PARTS: tl.constexpr):
    """What each unit gets of the sum that is missing, times its room."""
    part = tl.arange(0, PARTS)
    at = (row * parts + part) * 2
    total = tl.sum(tl.load(norms_ptr + at, mask=part < parts, other=0.0), 0)
    room = tl.sum(tl.load(norms_ptr + at + 1, mask=part < parts, other=0.0), 0)
    share = (k - total) / tl.where(room > 0, room, 1.0)
    return tl.where(room > 0, tl.minimum(tl.maximum(share, -1.0), 1.0), 0.0)


@triton.jit
def _counted(counts_ptr, row, before, parts, number, PARTS: tl.constexpr):
    """One of the counts of a row, over its first parts."""
    part = tl.arange(0, PARTS)
    return tl.sum(tl.load(counts_ptr + (row * parts + part) * 2 + number, mask=part < before, other=0), 0)


@triton.jit
def _shift(wanted):
    """Sums are integers, in units of 2^−shift: at most 51, and less where k needs the room."""
    bits = (wanted.to(tl.float64).to(tl.int64, bitcast=True) >> 52).to(tl.int32) - 1022  # of a whole number
    return tl.minimum(62 - bits, 51)


@triton.jit
def _arcs(probs_ptr, at, end, share, scale):
    """Probabilities, and the lengths of their arcs; 0 for those that are certain."""
    p = tl.load(probs_ptr + at, mask=at < end, other=0.0).to(tl.float64)
    length = tl.where(p < 1, (p + p * (1 - p) * share) * scale, 0.0)
    # 2^52 + v has the integer v in its lowest bits, rounded.
    return p, (length + 4503599627370496.0).to(tl.int64, bitcast=True) - 4841369599423283200


@triton.jit
def arcs_kernel(
    probs_ptr,
    norms_ptr,
    counts_ptr,
    lengths_ptr,
    n,
    length,
    parts,
    k,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A part of a row: how long its arcs are together."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    share = _share(norms_ptr, row, parts, k, PARTS)
    shift = _shift(k - _counted(counts_ptr, row, parts, parts, 0, PARTS))
    scale = (tl.full((), 1, tl.int64) << shift).to(tl.float64)
    end = tl.minimum(n, (part + 1) * length)
    total = tl.zeros((), tl.int64)
    for start in range(part * length, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        _, arc = _arcs(probs_ptr + row * n, at, end, share, scale)
        total += tl.sum(arc, 0)
    tl.store(lengths_ptr + row * parts + part, total)


@triton.jit
def systematic_kernel(
    probs_ptr,
    u_ptr,
    norms_ptr,
    counts_ptr,
    lengths_ptr,
    out_ptr,
    rows,
    n,
    length,
    parts,
    k,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A part of one draw: a unit is drawn where 1 − u plus the sum passes a whole number."""
    draw, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = draw % rows
    share = _share(norms_ptr, row, parts, k, PARTS)
    wanted = k - _counted(counts_ptr, row, parts, parts, 0, PARTS)
    shift = _shift(wanted)
    whole = tl.full((), 1, tl.int64) << shift
    others = tl.arange(0, PARTS)
    lengths = tl.load(lengths_ptr + row * parts + others, mask=others < parts, other=0)
    first = whole - 1 - (tl.load(u_ptr + draw) * whole.to(tl.float64)).to(tl.int64)
    passed = first + tl.sum(tl.where(others < part, lengths, 0), 0)

    # The last whole number is where the sum ends, and rounding decides whether it is passed. What is missing
    # is drawn, and what is too much left out, from the last unit on which it could be.
    drawn = ((first + tl.sum(lengths, 0)) >> shift).to(tl.int32)
    missing = wanted - drawn
    open_units = _counted(counts_ptr, row, parts, parts, 1, PARTS)
    could = tl.where(missing < 0, drawn, open_units - drawn)
    drawn_before = (passed >> shift).to(tl.int32)
    open_before = _counted(counts_ptr, row, part, parts, 1, PARTS)
    could_before = tl.where(missing < 0, drawn_before, open_before - drawn_before)

    end = tl.minimum(n, (part + 1) * length)
    for start in range(part * length, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        p, arc = _arcs(probs_ptr + row * n, at, end, share, whole.to(tl.float64))
        sums = passed + tl.cumsum(arc, 0)
        hit = (sums >> shift) > ((sums - arc) >> shift)
        can_change = ((p > 0) & (p < 1) & (hit == (missing < 0))).to(tl.int32)
        place = could_before + tl.cumsum(can_change, 0)
        changes = (can_change > 0) & (place > could - tl.abs(missing))
        chosen = (hit != changes) | (p >= 1)
        tl.store(out_ptr + draw * n + at, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=at < end)
        passed += tl.sum(arc, 0)
        could_before += tl.sum(can_change, 0)


@triton.jit
def leaves_kernel(
    probs_ptr,
    norms_ptr,
    heap_ptr,
    floor_ptr,
    n,
    inner,
    parts,
    blocks,
    k,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of the leaves of one row: normalised probabilities; the certain ones are counted."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    share = _share(norms_ptr, row, parts, k, PARTS)
    p = tl.load(probs_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float64)
    p = p + p * (1 - p) * share
    tl.store(heap_ptr + row * (2 * inner + 1) + inner + at, p, mask=at <= inner)
    tl.atomic_add(floor_ptr + row, tl.sum((p >= 1).to(tl.int32), 0), sem="relaxed")


@triton.jit
def _children(heap_ptr, node, exists):
    """The fractions of the two children; a certain leaf has none."""
    a = tl.load(heap_ptr + 2 * node + 1, mask=exists, other=0.0)
    b = tl.load(heap_ptr + 2 * node + 2, mask=exists, other=0.0)
    return tl.where(a >= 1, 0.0, a), tl.where(b >= 1, 0.0, b)


@triton.jit
def duel_kernel(heap_ptr, floor_ptr, nodes, size, blocks, BLOCK: tl.constexpr):
    """A block of the nodes of one level of one row: their fractions, and how many go over 1."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    node = nodes - 1 + at
    a, b = _children(heap_ptr + row * size, node, at < nodes)
    over = (a + b >= 1).to(tl.float64)
    tl.store(heap_ptr + row * size + node, a + b - over, mask=at < nodes)
    tl.atomic_add(floor_ptr + row, tl.sum(over.to(tl.int32), 0), sem="relaxed")


@triton.jit
def pivotal_kernel(
    heap_ptr,
    u_ptr,
    floor_ptr,
    out_ptr,
    rows,
    n,
    inner,
    blocks,
    levels,
    k,
    BLOCK: tl.constexpr,
):
    """A block of units of one draw: each goes down from the root to itself, past the duels that all share."""
    draw = (tl.program_id(0) // blocks).to(tl.int64)
    row = draw % rows
    unit = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    heap_ptr += row * (2 * inner + 1)
    # The root has one more than its floor, or not: the floor counts the certain and the nodes over 1.
    one_more = (tl.zeros((BLOCK,), tl.int32) + (k - tl.load(floor_ptr + row))) > 0
    for depth in range(levels):
        node = (1 << depth) - 1 + (unit >> (levels - depth))
        is_left = ((unit >> (levels - depth - 1)) & 1) == 0
        a, b = _children(heap_ptr, node, unit < n)
        total = a + b
        over = total >= 1
        share, chance = tl.where(over, 2 - total, total), tl.where(over, 1 - b, a)
        u = tl.load(u_ptr + draw * inner + node, mask=unit < n, other=0.0)
        left_wins = u * share < chance
        one, both = one_more ^ over, one_more & over
        one_more = both | (one & (left_wins == is_left))
    certain = tl.load(heap_ptr + inner + unit, mask=unit < n, other=0.0) >= 1
    chosen = one_more | certain
    tl.store(out_ptr + draw * n + unit, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=unit < n)
