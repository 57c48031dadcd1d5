"""The k-th largest score of a row that is split over several programs, digit by digit of its key.

There is one launch per digit. It looks at the entries that agree with the digits found so far, and counts how
many have each of the 256 values of the next digit. The next launch reads the digit of the k-th largest from
these counts, then counts itself. Counts are integers, so the order in which programs add to them does not
matter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import key_of, read, warps_of

__all__ = ["Picks", "count_digits", "digit_kernel", "pick", "score_key"]

SHIFTS = (24, 16, 8, 0)


class Picks(NamedTuple):
    """What `pick` needs to find the last digit, in int32.

    ``counts`` (rows, 256) are those of the last digit. ``before`` (rows, 2) holds the digits so far, and the
    rank among the entries that agree with them. ``found`` (rows, 2) has room for the same after the last one.
    """

    counts: Tensor
    before: Tensor
    found: Tensor


def count_digits(x: Tensor, mask: Tensor | None, rank: Tensor, parts: int, length: int, block: int) -> Picks:
    """Count the digits of the rank-th largest of each row of x (rows, n); ranks 1 … n, int32 (rows, 1)."""
    rows, n = x.shape
    counts = torch.zeros(len(SHIFTS), rows, 256, dtype=torch.int32, device=x.device)
    picks = torch.zeros(len(SHIFTS) + 1, rows, 2, dtype=torch.int32, device=x.device)
    picks[0, :, 1:] = rank
    for i, shift in enumerate(SHIFTS):
        digit_kernel[(rows, parts)](
            x,
            x if mask is None else mask,
            counts[max(i - 1, 0)],
            picks[max(i - 1, 0)],
            picks[i],
            counts[i],
            n,
            length,
            SHIFT=shift,
            HAS_MASK=mask is not None,
            BLOCK=block,
            num_warps=warps_of(block),
        )
    return Picks(counts[-1], picks[-2], picks[-1])


@triton.jit
def pick(counts_ptr, before_ptr, row, SHIFT: tl.constexpr):
    """The digits of a row down to the one at SHIFT, and the rank among the entries that agree with them."""
    digits = tl.arange(0, 256)
    counts = tl.load(counts_ptr + row * 256 + digits)
    prefix, rank = tl.load(before_ptr + row * 2), tl.load(before_ptr + row * 2 + 1)
    from_here_up = tl.cumsum(counts, 0, reverse=True)
    digit = tl.sum((from_here_up >= rank).to(tl.int32), 0) - 1
    above = tl.sum(tl.where(digits > digit, counts, 0), 0)
    return prefix | (digit << SHIFT), rank - above


@triton.jit
def score_key(prefix):
    """The key that has these digits."""
    return prefix ^ -2147483648


@triton.jit
def digit_kernel(
    x_ptr,
    mask_ptr,
    old_counts_ptr,
    old_picks_ptr,
    picks_ptr,
    counts_ptr,
    n,
    length,
    SHIFT: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: how many entries that agree so far have each value of the digit at SHIFT."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    prefix = tl.zeros((), tl.int32)
    if SHIFT < 24:
        prefix, rank = pick(old_counts_ptr, old_picks_ptr, row, SHIFT + 8)
        if part == 0:
            tl.store(picks_ptr + row * 2, prefix)
            tl.store(picks_ptr + row * 2 + 1, rank)
    x_ptr += row * n
    mask_ptr += row * n
    begin, end = part * length, tl.minimum(n, (part + 1) * length)
    counts = tl.zeros((256,), tl.int32)
    digits = tl.arange(0, 256)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        key = score_key(key_of(read(x_ptr, mask_ptr, at, end, HAS_MASK)))  # its own inverse
        agrees = at < end
        if SHIFT < 24:
            agrees = agrees & (((key ^ prefix) >> (SHIFT + 8)) == 0)
        digit = tl.where(agrees, (key >> SHIFT) & 255, 0)
        others = BLOCK - tl.sum(agrees.to(tl.int32), 0)  # they were counted as zeros
        counts += tl.histogram(digit, 256) - tl.where(digits == 0, others, 0)
    tl.atomic_add(counts_ptr + row * 256 + digits, counts, mask=counts > 0, sem="relaxed")
