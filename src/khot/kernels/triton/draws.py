"""Systematic draws in Triton, and code that other draws share.

The kernels do what those for the CPU do (``csrc/designs.cpp``). They normalise the probabilities while they
read them, π + π(1 − π)·share, and add them as integers; so the same uniform variables give the same draws.
Whatever does not depend on the uniform variables is computed once for all draws of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, split, warps_of

__all__ = ["draw_block_of", "norms_of", "put_back", "share_of", "systematic"]


def systematic(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Draw the units on whose intervals the points u, u + 1, … fall; see ``khot.kernels.cpu.systematic``."""
    if order is not None:
        shuffled = probs.expand(order.shape).gather(-1, order)
        return put_back(systematic(shuffled, k, u.unsqueeze(0)), order)
    n = probs.shape[-1]
    probs, u = probs.contiguous(), u.contiguous()
    out = probs.new_empty(*u.shape, n)
    if not out.numel():
        return out
    rows = probs.numel() // n
    with torch.cuda.device_of(probs):
        (parts, length), block = split(rows, n), draw_block_of(n)
        norms, counts = norms_of(probs, rows, n, parts, length)
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


def draw_block_of(n: int) -> int:
    """The block of draws, smaller than elsewhere because float64 takes twice the registers."""
    return min(block_of(n), 1024)


def put_back(drawn: Tensor, order: Tensor) -> Tensor:
    """One draw per row, moved back to the places from which ``order`` took the units."""
    return torch.zeros_like(drawn[0]).scatter_(-1, order, drawn[0])


def norms_of(probs: Tensor, rows: int, n: int, parts: int, length: int) -> tuple[Tensor, Tensor]:
    """For each part: Σπ and Σπ(1 − π), and the numbers of certain and of open units."""
    norms = torch.empty(rows, parts, 2, dtype=torch.float64, device=probs.device)
    counts = torch.empty(rows, parts, 2, dtype=torch.int32, device=probs.device)
    block = draw_block_of(n)
    norm_kernel[(rows, parts)](probs, norms, counts, n, length, BLOCK=block, num_warps=warps_of(block))
    return norms, counts


@triton.jit
def norm_kernel(probs_ptr, norms_ptr, counts_ptr, n, length, BLOCK: tl.constexpr):
    """For a part of a row: the sums and counts that normalising needs."""
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
def share_of(norms_ptr, row, parts, k, PARTS: tl.constexpr):
    """The share of the missing sum that a unit gets, times its room π(1 − π)."""
    part = tl.arange(0, PARTS)
    at = (row * parts + part) * 2
    total = tl.sum(tl.load(norms_ptr + at, mask=part < parts, other=0.0), 0)
    room = tl.sum(tl.load(norms_ptr + at + 1, mask=part < parts, other=0.0), 0)
    share = (k - total) / tl.where(room > 0, room, 1.0)
    return tl.where(room > 0, tl.minimum(tl.maximum(share, -1.0), 1.0), 0.0)


@triton.jit
def _counted(counts_ptr, row, before, parts, number, PARTS: tl.constexpr):
    """One of the counts of a row, summed over its first parts."""
    part = tl.arange(0, PARTS)
    return tl.sum(tl.load(counts_ptr + (row * parts + part) * 2 + number, mask=part < before, other=0), 0)


@triton.jit
def _shift(wanted):
    """The shift of the integer sums, in units of 2^−shift: 51, or less if a large k needs the bits."""
    bits = (wanted.to(tl.float64).to(tl.int64, bitcast=True) >> 52).to(tl.int32) - 1022  # of a whole number
    return tl.minimum(62 - bits, 51)


@triton.jit
def _arcs(probs_ptr, at, end, share, scale):
    """Probabilities, and the lengths of their intervals: 0 for a certain unit."""
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
    """For a part of a row: the sum of the lengths of its intervals."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    share = share_of(norms_ptr, row, parts, k, PARTS)
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
    """For a part of one draw: a unit is drawn where 1 − u plus the sum passes a whole number."""
    draw, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = draw % rows
    share = share_of(norms_ptr, row, parts, k, PARTS)
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
