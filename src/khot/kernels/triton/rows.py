"""What the kernels share: how rows are divided among programs and read, block by block.

One program takes a row, whatever its length, where there are rows enough to keep a GPU busy. A long row of
few is split over several programs: each takes a part and leaves its sums in a workspace, and whoever needs
them adds them up itself, in the next launch. So there is a fixed number of launches, no program waits for
another, nothing comes to the host, and sums are always taken in the same order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = [
    "LARGEST_BLOCK",
    "LONG",
    "block_of",
    "key_of",
    "kth_key",
    "per_row",
    "read",
    "split",
    "value_of_key",
    "warps_of",
]

LARGEST_BLOCK = 4096
"""Entries that a program holds at a time."""
LONG = 65_536
"""Rows up to here are never split."""
PROGRAMS = 256
"""How many programs the rows of one call are split into, at most: about as many as a GPU runs at a time."""
MOST_PARTS = 128
"""Of one row: every program adds up the sums of all of them."""


def block_of(n: int) -> int:
    """How many entries of a row of n a program holds at a time."""
    return min(max(triton.next_power_of_2(n), 16), LARGEST_BLOCK)


def split(rows: int, n: int) -> tuple[int, int]:
    """How many programs share a row, where there are so many rows of n, and how long their parts are.

    One, unless the row is longer than ``LONG`` and there are at most ``PROGRAMS`` / 2 of them.
    """
    parts = 1 if n <= LONG else max(1, min(triton.cdiv(n, LARGEST_BLOCK), PROGRAMS // rows, MOST_PARTS))
    block = block_of(n)
    length = triton.cdiv(triton.cdiv(n, parts), block) * block
    return triton.cdiv(n, length), length


def warps_of(block: int) -> int:
    """How many warps share a block."""
    return 1 if block <= 256 else 4 if block <= 1024 else 16


def per_row(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """One value a row, in memory."""
    return value.to(dtype).expand(*shape[:-1], 1).contiguous()


@triton.jit
def read(x_ptr, mask_ptr, at, end, HAS_MASK: tl.constexpr):
    """Scores as float32; −inf beyond the end and where the mask excludes; no negative zero."""
    x = tl.load(x_ptr + at, mask=at < end, other=-float("inf")).to(tl.float32) + 0.0
    if HAS_MASK:
        allowed = tl.load(mask_ptr + at, mask=at < end, other=0)
        x = tl.where(allowed != 0, x, -float("inf"))
    return x


@triton.jit
def key_of(x):
    """An int32 in the order of x; NaN is the largest."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


@triton.jit
def value_of_key(key):
    """The score whose key it is."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def count_from(x_ptr, mask_ptr, n, key, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr):
    """How many entries have this key or a larger one."""
    count = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, n, HAS_MASK)
        count += tl.sum(((key_of(x) >= key) & (at < n)).to(tl.int32), 0)
    return count


@triton.jit
def kth_key(x_ptr, mask_ptr, n, rank, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr):
    """The key of the rank-th largest, 1 ≤ rank ≤ n, bit by bit."""
    nonnegative = count_from(x_ptr, mask_ptr, n, 0, HAS_MASK, BLOCK)
    key = tl.where(nonnegative >= rank, 0, -2147483648).to(tl.int32)
    for i in range(31):
        larger = key + (tl.full((), 1, tl.int32) << (30 - i))
        count = count_from(x_ptr, mask_ptr, n, larger, HAS_MASK, BLOCK)
        key = tl.where(count >= rank, larger, key)
    return key
