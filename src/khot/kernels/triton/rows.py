"""What the kernels share: how a row is read, block by block, and its k-th largest."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["LARGEST_BLOCK", "block_of", "kth_key", "per_row", "read", "value_of_key", "warps_of"]

LARGEST_BLOCK = 4096


def block_of(n: int) -> int:
    """How many entries of a row of n a program holds at a time."""
    return min(max(triton.next_power_of_2(n), 16), LARGEST_BLOCK)


def warps_of(block: int) -> int:
    """How many warps share a block."""
    return 1 if block <= 256 else 4 if block <= 1024 else 16


def per_row(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """One value a row, in memory."""
    return value.to(dtype).expand(*shape[:-1], 1).contiguous()


@triton.jit
def read(x_ptr, mask_ptr, at, n, HAS_MASK: tl.constexpr):
    """Scores as float32; −inf beyond the row and where the mask excludes; no negative zero."""
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32) + 0.0
    if HAS_MASK:
        allowed = tl.load(mask_ptr + at, mask=at < n, other=0)
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
