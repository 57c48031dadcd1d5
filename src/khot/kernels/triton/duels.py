"""Tree pivotal draws in Triton: duels up a tree, then down again to each unit.

The kernels do what the one for the CPU does (``csrc/designs.cpp``). ``khot.designs.pivotal._duels`` says what
a node decides.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.draws import draw_block_of, norms_of, put_back, share_of
from khot.kernels.triton.rows import split, warps_of

__all__ = ["pivotal"]


def pivotal(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Draw by duels on a tree; see ``khot.kernels.cpu.pivotal``."""
    if order is not None:
        shuffled = probs.expand(order.shape).gather(-1, order)
        return put_back(pivotal(shuffled, k, u.unsqueeze(0)), order)
    n, inner = probs.shape[-1], u.shape[-1]
    probs, u = probs.contiguous(), u.contiguous()
    out = probs.new_empty(*u.shape[:-1], n)
    if not out.numel():
        return out
    rows, leaves = probs.numel() // n, inner + 1
    with torch.cuda.device_of(probs):
        parts, length = split(rows, n)
        norms, _ = norms_of(probs, rows, n, parts, length)
        heap = torch.empty(rows, inner + leaves, dtype=torch.float64, device=probs.device)
        floor = torch.zeros(rows, dtype=torch.int32, device=probs.device)
        block = draw_block_of(leaves)
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
    """For a block of the leaves of one row: normalised probabilities, and how many are certain."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    share = share_of(norms_ptr, row, parts, k, PARTS)
    p = tl.load(probs_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float64)
    p = p + p * (1 - p) * share
    tl.store(heap_ptr + row * (2 * inner + 1) + inner + at, p, mask=at <= inner)
    tl.atomic_add(floor_ptr + row, tl.sum((p >= 1).to(tl.int32), 0), sem="relaxed")


@triton.jit
def _children(heap_ptr, node, exists):
    """The fractions of the two children; 0 for a certain leaf."""
    a = tl.load(heap_ptr + 2 * node + 1, mask=exists, other=0.0)
    b = tl.load(heap_ptr + 2 * node + 2, mask=exists, other=0.0)
    return tl.where(a >= 1, 0.0, a), tl.where(b >= 1, 0.0, b)


@triton.jit
def duel_kernel(heap_ptr, floor_ptr, nodes, size, blocks, BLOCK: tl.constexpr):
    """For a block of nodes of one level of one row: their fractions, and how many exceed 1."""
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
    """For a block of units of one draw: each follows the duels from the root down to itself."""
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
