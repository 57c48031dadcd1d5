"""Hard top-k in Triton: one launch per call, six if the rows are split over several programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.digits import count_digits, pick, score_key
from khot.kernels.triton.rows import block_of, key_of, kth_key, per_row, read, split, warps_of

__all__ = ["hard_topk"]

WARPS = 8
"""At most: with more, and so fewer registers for each thread, CUDA 10.0 spills."""


def hard_topk(x: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mark the k largest of each row with 1, as in ``khot.kernels.cpu.hard_topk``."""
    shape, n = x.shape, x.shape[-1]
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    mask = None if mask is None else mask.expand(shape).contiguous().view(torch.uint8)
    k = per_row(k, shape, torch.int32)
    block, rows = block_of(n), x.numel() // n
    scores = (x.view(rows, n), x if mask is None else mask)
    shape_of = {"HAS_MASK": mask is not None, "BLOCK": block, "num_warps": min(warps_of(block), WARPS)}
    with torch.cuda.device_of(x):
        parts, length = split(rows, n)
        if parts == 1:
            hard_kernel[(rows,)](*scores, k, out, n, **shape_of)
            return out
        picks = count_digits(scores[0], mask, k.view(rows, 1).clamp(1, n), parts, length, block)
        ties = torch.empty(rows, parts, dtype=torch.int32, device=x.device)
        ties_kernel[(rows, parts)](*scores, *picks, ties, n, length, **shape_of)
        mark_kernel[(rows, parts)](
            *scores, k, picks.found, ties, out, n, length, PARTS=triton.next_power_of_2(parts), **shape_of
        )
    return out


@triton.jit
def hard_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    out_ptr,
    n,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For one row: ties go to the lower index, NaN counts as the largest, −inf is never selected."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    mask_ptr += row * n
    k = tl.load(k_ptr + row)
    rank = tl.minimum(tl.maximum(k, 1), n)
    threshold = kth_key(x_ptr, mask_ptr, n, rank, HAS_MASK, BLOCK)
    above = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        key = key_of(read(x_ptr, mask_ptr, at, n, HAS_MASK))
        above += tl.sum(((key > threshold) & (at < n)).to(tl.int32), 0)
    taken = tl.zeros((), tl.int32)
    _mark(x_ptr, mask_ptr, out_ptr + row * n, 0, n, threshold, k, k - above, taken, HAS_MASK, BLOCK)


@triton.jit
def _mark(
    x_ptr,
    mask_ptr,
    out_ptr,
    begin,
    end,
    threshold,
    k,
    places,
    taken,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write ones above the threshold, and at the entries equal to it while there are places left."""
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, end, HAS_MASK)
        key = key_of(x)
        level = ((key == threshold) & (at < end)).to(tl.int32)
        place = taken + tl.cumsum(level, 0)
        taken += tl.sum(level, 0)
        chosen = (key > threshold) | ((level > 0) & (place <= places))
        chosen = chosen & (x != -float("inf")) & (k > 0)
        tl.store(out_ptr + at, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=at < end)


@triton.jit
def ties_kernel(
    x_ptr,
    mask_ptr,
    counts_ptr,
    before_ptr,
    found_ptr,
    ties_ptr,
    n,
    length,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: how many entries equal the k-th largest."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    prefix, rank = pick(counts_ptr, before_ptr, row, 0)
    if part == 0:
        tl.store(found_ptr + row * 2, prefix)
        tl.store(found_ptr + row * 2 + 1, rank)
    threshold = score_key(prefix)
    end = tl.minimum(n, (part + 1) * length)
    ties = tl.zeros((), tl.int32)
    x_ptr += row * n
    mask_ptr += row * n
    for start in range(part * length, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        key = key_of(read(x_ptr, mask_ptr, at, end, HAS_MASK))
        ties += tl.sum(((key == threshold) & (at < end)).to(tl.int32), 0)
    tl.store(ties_ptr + row * tl.num_programs(1) + part, ties)


@triton.jit
def mark_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    found_ptr,
    ties_ptr,
    out_ptr,
    n,
    length,
    PARTS: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: its ones; the parts before it take their ties first."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    threshold, places = score_key(tl.load(found_ptr + row * 2)), tl.load(found_ptr + row * 2 + 1)
    others = tl.arange(0, PARTS)
    taken = tl.sum(tl.load(ties_ptr + row * tl.num_programs(1) + others, mask=others < part, other=0), 0)
    _mark(
        x_ptr + row * n, mask_ptr + row * n, out_ptr + row * n, part * length,
        tl.minimum(n, (part + 1) * length), threshold, tl.load(k_ptr + row), places, taken,
        HAS_MASK, BLOCK,
    )  # fmt: skip
