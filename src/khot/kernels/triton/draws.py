"""The sampling designs in Triton: systematic draws, and draws by duels up a tree."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, warps_of

__all__ = ["pivotal", "systematic"]


def systematic(probs: Tensor, k: int, u: Tensor) -> Tensor:
    """Ones at the units over the points u, u + 1, … on the sums; see ``khot.kernels.cpu.systematic``.

    Args:
        probs: inclusion probabilities (…, n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, …).
    """
    n = probs.shape[-1]
    probs, u = probs.contiguous(), u.contiguous()
    out = probs.new_empty(*u.shape, n)
    if out.numel():
        block = block_of(n)
        with torch.cuda.device_of(probs):
            systematic_kernel[(u.numel(),)](
                probs, u, out, probs.numel() // n, n, k, BLOCK=block, num_warps=warps_of(block)
            )
    return out


@triton.jit
def _least(a, b):
    return tl.minimum(a, b)


@triton.jit
def systematic_kernel(probs_ptr, u_ptr, out_ptr, rows, n, k, BLOCK: tl.constexpr):
    """One draw of one row; units with π = 1 are set aside, sums are taken in float64."""
    draw = tl.program_id(0).to(tl.int64)
    probs_ptr += (draw % rows) * n
    out_ptr += draw * n
    u = tl.load(u_ptr + draw)
    total, certain = tl.zeros((), tl.float64), tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.load(probs_ptr + at, mask=at < n, other=0.0).to(tl.float64)
        certain += tl.sum((p >= 1).to(tl.int32), 0)
        total += tl.sum(tl.where(p >= 1, 0.0, p), 0)
    size = (k - certain).to(tl.float64)
    scale = size / tl.where(total > 0, total, 1.0)

    # How many are drawn up to each unit: as many as there are points before its end; but one a unit, because
    # two points may lie over an arc that is as long as 1 but for rounding, and all of them at the end.
    units = n - certain
    summed, passed, least = tl.zeros((), tl.float64), tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    before = tl.zeros((), tl.int32)
    place = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        at = start + place
        p = tl.load(probs_ptr + at, mask=at < n, other=1.0).to(tl.float64)
        sure = p >= 1
        arc = tl.where(sure, 0.0, p)
        sums = summed + tl.cumsum(arc, 0)
        points = tl.where(sums >= total, size, tl.ceil(tl.minimum(sums * scale, size) - u)).to(tl.int32)
        number = passed + tl.cumsum((~sure).to(tl.int32), 0)
        slack = tl.minimum(tl.associative_scan(points - number, 0, _least), least)
        drawn = tl.maximum(number + slack, k - certain - (units - number))
        previous = tl.where(place == 0, before, tl.gather(drawn, tl.maximum(place - 1, 0), 0))
        chosen = sure | (drawn > previous)
        tl.store(out_ptr + at, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=at < n)
        summed += tl.sum(arc, 0)
        passed += tl.sum((~sure).to(tl.int32), 0)
        least = tl.min(slack, 0)
        before = tl.max(drawn, 0)


def pivotal(probs: Tensor, k: int, u: Tensor, over: Tensor, left: Tensor) -> Tensor:
    """Tree pivotal draws; see ``khot.kernels.cpu.pivotal``.

    Args:
        probs: inclusion probabilities (…, n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, …, leaves − 1), for the inner nodes of a heap whose leaves are n
            rounded up to a power of two.
        over: whether the two children of a node exceed 1, (…, leaves − 1), in the order of u, and
        left: the probability that the left one takes what only one can have.
    """
    n, inner = probs.shape[-1], u.shape[-1]
    probs, u, over, left = (t.contiguous() for t in (probs, u, over.view(torch.uint8), left))
    out = probs.new_empty(*u.shape[:-1], n)
    if out.numel():
        block = min(block_of(n), 256)
        with torch.cuda.device_of(probs):
            pivotal_kernel[(out.numel() // n, triton.cdiv(n, block))](
                probs,
                u,
                over,
                left,
                out,
                probs.numel() // n,
                n,
                inner,
                k,
                LEVELS=inner.bit_length(),
                BLOCK=block,
                num_warps=warps_of(block),
            )
    return out


@triton.jit
def pivotal_kernel(
    probs_ptr,
    u_ptr,
    over_ptr,
    left_ptr,
    out_ptr,
    rows,
    n,
    inner,
    k,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of units of one draw: each goes down from the root to itself, past the duels that all share."""
    draw = tl.program_id(0).to(tl.int64)
    row = draw % rows
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # The root has one more than its floor, or not: the floor counts the certain and the nodes over 1.
    floor = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.load(probs_ptr + row * n + at, mask=at < n, other=0.0)
        floor += tl.sum((p >= 1).to(tl.int32), 0)
    for start in range(0, inner, BLOCK):
        at = start + tl.arange(0, BLOCK)
        floor += tl.sum(tl.load(over_ptr + row * inner + at, mask=at < inner, other=0).to(tl.int32), 0)
    one_more = (tl.zeros((BLOCK,), tl.int32) + (k - floor)) > 0
    for depth in range(LEVELS):
        node = (1 << depth) - 1 + (unit >> (LEVELS - depth))
        is_left = ((unit >> (LEVELS - depth - 1)) & 1) == 0
        over = tl.load(over_ptr + row * inner + node, mask=unit < n, other=0) != 0
        chance = tl.load(left_ptr + row * inner + node, mask=unit < n, other=0.0)
        u = tl.load(u_ptr + draw * inner + node, mask=unit < n, other=0.0)
        left_wins = u < chance
        one, both = one_more ^ over, one_more & over
        one_more = both | (one & (left_wins == is_left))
    p = tl.load(probs_ptr + row * n + unit, mask=unit < n, other=0.0)
    chosen = one_more | (p >= 1)
    tl.store(out_ptr + draw * n + unit, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=unit < n)
