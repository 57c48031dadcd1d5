"""Hard top-k in Triton, and one round of a tournament."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, key_of, kth_key, per_row, read, warps_of

__all__ = ["hard_topk", "tournament_round", "tournament_round_gradient"]


def hard_topk(x: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Ones at the k largest of each row, as ``khot.kernels.cpu.hard_topk`` gives them."""
    shape, n = x.shape, x.shape[-1]
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    kept = x if mask is None else mask.expand(shape).contiguous().view(torch.uint8)
    block = block_of(n)
    with torch.cuda.device_of(x):
        hard_kernel[(x.numel() // n,)](
            x,
            kept,
            per_row(k, shape, torch.int32),
            out,
            n,
            HAS_MASK=mask is not None,
            BLOCK=block,
            num_warps=warps_of(block),
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
    """One row: ties go to the lower index, NaN counts as the largest, −inf is never selected."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    mask_ptr += row * n
    out_ptr += row * n
    k = tl.load(k_ptr + row)
    rank = tl.minimum(tl.maximum(k, 1), n)
    threshold = kth_key(x_ptr, mask_ptr, n, rank, HAS_MASK, BLOCK)
    above = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        key = key_of(read(x_ptr, mask_ptr, at, n, HAS_MASK))
        above += tl.sum(((key > threshold) & (at < n)).to(tl.int32), 0)
    taken = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, n, HAS_MASK)
        key = key_of(x)
        level = ((key == threshold) & (at < n)).to(tl.int32)
        place = taken + tl.cumsum(level, 0)
        taken += tl.sum(level, 0)
        chosen = (key > threshold) | ((level > 0) & (place <= k - above))
        chosen = chosen & (x != -float("inf")) & (k > 0)
        tl.store(out_ptr + at, chosen.to(tl.float32).to(out_ptr.dtype.element_ty), mask=at < n)


def tournament_round(v: Tensor, left: int) -> tuple[Tensor, Tensor]:
    """One round of successive halving on rows (…, m) sorted from the best down, of which ``left`` remain.

    The first 2·left − m pass alone; of the others the best meets the worst, and they are blended by σ of
    their difference.

    Returns:
        The rows (…, left) after it, and the share of the better one in each place, 1 where it was alone.
    """
    m = v.shape[-1]
    if not (m + 1) // 2 <= left <= m:
        raise ValueError(f"left must satisfy (m + 1) // 2 <= left <= m = {m}, got left = {left}")
    v = v.contiguous()
    blended = v.new_empty(*v.shape[:-1], left)
    share = torch.empty_like(blended)
    if blended.numel():
        block = block_of(left)
        with torch.cuda.device_of(v):
            round_kernel[(blended.numel() // left, triton.cdiv(left, block))](
                v, blended, share, m, left, BLOCK=block, num_warps=warps_of(block)
            )
    return blended, share


def tournament_round_gradient(v: Tensor, share: Tensor, grad: Tensor, grad_share: Tensor) -> Tensor:
    """The gradient in v from those in both results of `tournament_round`."""
    m, left = v.shape[-1], share.shape[-1]
    v, share, grad, grad_share = (t.contiguous() for t in (v, share, grad, grad_share))
    out = torch.empty_like(v)
    if v.numel():
        block = block_of(left)
        with torch.cuda.device_of(v):
            round_gradient_kernel[(share.numel() // left, triton.cdiv(left, block))](
                v, share, grad, grad_share, out, m, left, BLOCK=block, num_warps=warps_of(block)
            )
    return out


@triton.jit
def round_kernel(v_ptr, blended_ptr, share_ptr, m, left, BLOCK: tl.constexpr):
    """A block of the places that are left, of one row."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    alone = 2 * left - m
    meets = (place >= alone) & (place < left)
    best = tl.load(v_ptr + row * m + place, mask=place < left, other=0.0).to(tl.float32)
    other = tl.load(v_ptr + row * m + m - 1 - (place - alone), mask=meets, other=0.0).to(tl.float32)
    other = tl.where(meets, other, best)
    share = tl.where(meets, 1 / (1 + tl.exp(other - best)), 1.0)
    blended = other + share * (best - other)
    kind = blended_ptr.dtype.element_ty
    tl.store(blended_ptr + row * left + place, blended.to(kind), mask=place < left)
    tl.store(share_ptr + row * left + place, share.to(kind), mask=place < left)


@triton.jit
def round_gradient_kernel(
    v_ptr,
    share_ptr,
    grad_ptr,
    grad_share_ptr,
    out_ptr,
    m,
    left,
    BLOCK: tl.constexpr,
):
    """The same block backward: each place writes the gradients of the two that met there."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    alone = 2 * left - m
    meets = (place >= alone) & (place < left)
    partner = m - 1 - (place - alone)
    best = tl.load(v_ptr + row * m + place, mask=place < left, other=0.0).to(tl.float32)
    other = tl.load(v_ptr + row * m + partner, mask=meets, other=0.0).to(tl.float32)
    other = tl.where(meets, other, best)
    share = tl.load(share_ptr + row * left + place, mask=place < left, other=1.0).to(tl.float32)
    grad = tl.load(grad_ptr + row * left + place, mask=place < left, other=0.0).to(tl.float32)
    grad_share = tl.load(grad_share_ptr + row * left + place, mask=place < left, other=0.0).to(tl.float32)
    by_difference = (grad * (best - other) + grad_share) * share * (1 - share)
    by_difference = tl.where(meets, by_difference, 0.0)
    kind = out_ptr.dtype.element_ty
    tl.store(out_ptr + row * m + place, (grad * share + by_difference).to(kind), mask=place < left)
    tl.store(out_ptr + row * m + partner, (grad * (1 - share) - by_difference).to(kind), mask=meets)
