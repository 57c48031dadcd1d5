"""One round of a tournament in Triton; ``khot.kernels.rounds`` is the same in torch operations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, per_row, warps_of

__all__ = ["tournament_round", "tournament_round_gradient"]


def tournament_round(v: Tensor, m: Tensor, t: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Play one round of successive halving.

    The first 2t − m entries pass without a match. Of the others, the best meets the worst, and so on; each
    pair is blended by σ of its difference.

    Args:
        v: rows (…, n); the first m of each are in descending order.
        m: how many entries play, (…, 1).
        t: how many are left after the round, (…, 1), with (m + 1) // 2 ≤ t ≤ m.
        size: the largest t.

    Returns:
        The rows (…, size) after the round, and the share (…, n) of each entry in the place it went to.
    """
    shape, n = v.shape, v.shape[-1]
    v = v.contiguous()
    blended, share = v.new_empty(*shape[:-1], size), torch.empty_like(v)
    if v.numel():
        m, t = (per_row(count, shape, torch.int32) for count in (m, t))
        block = block_of(n)
        blocks = triton.cdiv(n, block)
        with torch.cuda.device_of(v):
            round_kernel[(v.numel() // n * blocks,)](
                v, m, t, blended, share, n, size, blocks, BLOCK=block, num_warps=warps_of(block)
            )
    return blended, share


def tournament_round_gradient(v: Tensor, m: Tensor, t: Tensor, grad: Tensor, grad_share: Tensor) -> Tensor:
    """The gradient in v, from the gradients in both results of `tournament_round`."""
    shape, n, size = v.shape, v.shape[-1], grad.shape[-1]
    v, grad, grad_share = (g.contiguous() for g in (v, grad, grad_share))
    out = torch.empty_like(v)
    if v.numel():
        m, t = (per_row(count, shape, torch.int32) for count in (m, t))
        block = block_of(n)
        blocks = triton.cdiv(n, block)
        with torch.cuda.device_of(v):
            round_gradient_kernel[(v.numel() // n * blocks,)](
                v, m, t, grad, grad_share, out, n, size, blocks, BLOCK=block, num_warps=warps_of(block)
            )
    return out


@triton.jit
def _pairs(v_ptr, m, t, place, n):
    """Which places play, the better and the worse score of each pair, and the share of the better one."""
    partner = 2 * t - 1 - place
    best_place, other_place = tl.minimum(place, partner), tl.maximum(place, partner)
    meets = (place >= 2 * t - m) & (place < m) & (place < n)
    best = tl.load(v_ptr + best_place, mask=meets, other=0.0).to(tl.float32)
    other = tl.load(v_ptr + other_place, mask=meets, other=0.0).to(tl.float32)
    share = 1 / (1 + tl.exp(other - best))
    return meets, best_place, best, other, share


@triton.jit
def round_kernel(
    v_ptr, m_ptr, t_ptr, blended_ptr, share_ptr, n, size, blocks, BLOCK: tl.constexpr
):  # fmt: skip
    """For a block of places of one row: the blended scores and the shares."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    place = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    m, t = tl.load(m_ptr + row), tl.load(t_ptr + row)
    meets, _, best, other, share = _pairs(v_ptr + row * n, m, t, place, n)
    mine = tl.load(v_ptr + row * n + place, mask=place < n, other=0.0).to(tl.float32)
    blended = tl.where(meets, other + share * (best - other), mine)
    blended = tl.where(place < t, blended, 0.0)
    kept = tl.where(place < t, share, 1 - share)
    kept = tl.where(meets, kept, tl.where(place < m, 1.0, 0.0))
    kind = v_ptr.dtype.element_ty
    tl.store(blended_ptr + row * size + place, blended.to(kind), mask=place < size)
    tl.store(share_ptr + row * n + place, kept.to(kind), mask=place < n)


@triton.jit
def round_gradient_kernel(
    v_ptr, m_ptr, t_ptr, grad_ptr, grad_share_ptr, out_ptr, n, size, blocks, BLOCK: tl.constexpr
):  # fmt: skip
    """For the same block: the gradient. Both places of a pair compute the match, each writes its own part."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    place = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    m, t = tl.load(m_ptr + row), tl.load(t_ptr + row)
    meets, best_place, best, other, share = _pairs(v_ptr + row * n, m, t, place, n)
    other_place = 2 * t - 1 - best_place
    grad = tl.load(grad_ptr + row * size + best_place, mask=meets, other=0.0).to(tl.float32)
    of_best = tl.load(grad_share_ptr + row * n + best_place, mask=meets, other=0.0).to(tl.float32)
    of_other = tl.load(grad_share_ptr + row * n + other_place, mask=meets, other=0.0).to(tl.float32)
    by_difference = (grad * (best - other) + of_best - of_other) * share * (1 - share)
    met = tl.where(place < t, grad * share + by_difference, grad * (1 - share) - by_difference)
    passed = tl.load(grad_ptr + row * size + place, mask=place < tl.minimum(t, size), other=0.0)
    out = tl.where(meets, met, passed.to(tl.float32))
    tl.store(out_ptr + row * n + place, out.to(out_ptr.dtype.element_ty), mask=place < n)
