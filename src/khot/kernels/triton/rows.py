"""How rows are divided among programs, and how a program reads its row, block by block.

If there are enough rows to keep a GPU busy, one program computes one row of any length. A long row of a small
batch is split over several programs: each takes a part and leaves its sums in a workspace, and the programs
of the next launch add them up. So the number of launches is fixed, no program waits for another, nothing
comes to the host, and sums are always taken in the same order.
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
"""The most entries that a program holds at a time."""
LONG = 65_536
"""Rows up to this length are never split."""
PROGRAMS = 256
"""The most programs for the split rows of one call: about as many as a GPU runs at a time."""
MOST_PARTS = 128
"""The most parts of one row: every program adds up the sums of all of them."""


def block_of(n: int) -> int:
    """How many entries of a row of n entries a program holds at a time."""
    return min(max(triton.next_power_of_2(n), 16), LARGEST_BLOCK)


def split(rows: int, n: int) -> tuple[int, int]:
    """How many programs share each of these rows of n entries, and the length of their parts.

    It is one program, unless rows are longer than ``LONG`` and there are at most ``PROGRAMS`` / 2 of them.
    """
    parts = 1 if n <= LONG else max(1, min(triton.cdiv(n, LARGEST_BLOCK), PROGRAMS // rows, MOST_PARTS))
    block = block_of(n)
    length = triton.cdiv(triton.cdiv(n, parts), block) * block
    return triton.cdiv(n, length), length


def warps_of(block: int) -> int:
    """How many warps share a block."""
    return 1 if block <= 256 else 4 if block <= 1024 else 16


def per_row(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """One value per row, contiguous in memory."""
    return value.to(dtype).expand(*shape[:-1], 1).contiguous()


@triton.jit
def read(x_ptr, mask_ptr, at, end, HAS_MASK: tl.constexpr):
    """Read scores as float32: −inf beyond the end and where the mask is False, 0 for −0."""
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
    """The score that has this key."""
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
    """The key of the rank-th largest, 1 ≤ rank ≤ n, found bit by bit."""
    nonnegative = count_from(x_ptr, mask_ptr, n, 0, HAS_MASK, BLOCK)
    key = tl.where(nonnegative >= rank, 0, -2147483648).to(tl.int32)
    for i in range(31):
        larger = key + (tl.full((), 1, tl.int32) << (30 - i))
        count = count_from(x_ptr, mask_ptr, n, larger, HAS_MASK, BLOCK)
        key = tl.where(count >= rank, larger, key)
    return key
