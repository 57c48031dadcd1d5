"""The threshold family in Triton: weights, state and Jacobian products.

One program computes one row. `rows.split` decides which rows are long enough to be split over several
programs (``long_gates.py``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.long_gates import GATES, long_gated_topk, long_jacobian, steps_of
from khot.kernels.triton.rows import block_of, kth_key, per_row, split, value_of_key, warps_of
from khot.kernels.triton.thresholds import (
    advance,
    half_of,
    opening,
    slope_sums,
    sums,
    survey,
    write,
    write_product,
)

__all__ = ["gate_jacobian", "gated_topk"]


def gated_topk(
    gate: str, x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, norm: float
) -> tuple[Tensor, Tensor]:
    """Weights in the dtype of x, and the float32 state, as in ``khot.kernels.cpu.gated_topk``."""
    del norm  # 2: see khot.kernels.triton.serves
    shape, n = x.shape, x.shape[-1]
    x = x.contiguous()
    y, state = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    if x.numel() == 0:
        return y, state
    mask = None if mask is None else mask.expand(shape).contiguous().view(torch.uint8)
    budgets, temperatures = per_row(k, shape, torch.float32), per_row(temperature, shape, torch.float32)
    block, rows = block_of(n), x.numel() // n
    with torch.cuda.device_of(x):
        if split(rows, n)[0] > 1:
            long_gated_topk(gate, x.view(rows, n), budgets, temperatures, mask, y, state)
            return y, state
        gated_kernel[(rows,)](
            x,
            x if mask is None else mask,
            budgets,
            temperatures,
            y,
            state,
            n,
            GATE=GATES[gate],
            HAS_MASK=mask is not None,
            STEPS=steps_of(gate),
            BLOCK=block,
            num_warps=warps_of(block),
        )
    return y, state


def gate_jacobian(
    state: Tensor, grad: Tensor, temperature: Tensor, gate: str, norm: float
) -> tuple[Tensor, Tensor]:
    """The Jacobian times a vector, and the mean in it, as in ``khot.kernels.cpu.gate_jacobian``."""
    del norm
    shape, n = state.shape, state.shape[-1]
    state, grad = state.contiguous(), grad.expand(shape).contiguous()
    out, mean = torch.empty_like(state), state.new_zeros(*shape[:-1], 1)
    if state.numel() == 0:
        return out, mean
    temperatures = per_row(temperature, shape, torch.float32)
    block, rows = block_of(n), state.numel() // n
    with torch.cuda.device_of(state):
        if split(rows, n)[0] > 1:
            long_jacobian(gate, state.view(rows, n), grad, temperatures, out, mean)
            return out, mean
        jacobian_kernel[(rows,)](
            state,
            grad,
            temperatures,
            out,
            mean,
            n,
            GATE=GATES[gate],
            BLOCK=block,
            num_warps=warps_of(block),
        )
    return out, mean


@triton.jit
def gated_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    t_ptr,
    y_ptr,
    state_ptr,
    n,
    GATE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For one row: its weights and its state."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    mask_ptr += row * n
    y_ptr += row * n
    state_ptr += row * n
    k, half_t = tl.load(k_ptr + row), tl.load(t_ptr + row) * 0.5
    rank = tl.minimum(tl.maximum(tl.ceil(k), 1.0).to(tl.int32), n)
    anchor = value_of_key(kth_key(x_ptr, mask_ptr, n, rank, HAS_MASK, BLOCK))
    half_anchor = half_of(anchor)
    strictly, weakly, allowed, invalid, below = survey(x_ptr, mask_ptr, 0, n, anchor, half_t, HAS_MASK, BLOCK)
    e, low, high, excess, edge = opening(k, n, half_t, half_anchor, strictly, weakly, below, GATE)
    for step in range(STEPS):
        one, two, three, four = sums(
            x_ptr, mask_ptr, 0, n, half_anchor, half_t, e, edge, GATE, HAS_MASK, BLOCK
        )
        e, low, high = advance(step, k, e, low, high, excess, one, two, three, four, GATE)
    write(
        x_ptr, mask_ptr, y_ptr, state_ptr, 0, n, half_anchor, half_t, e, k, allowed, invalid,
        GATE, HAS_MASK, BLOCK,
    )  # fmt: skip


@triton.jit
def jacobian_kernel(
    state_ptr,
    grad_ptr,
    t_ptr,
    out_ptr,
    mean_ptr,
    n,
    GATE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For one row: w(g − Σwg/Σw)/τ and Σwg/Σw."""
    row = tl.program_id(0).to(tl.int64)
    state_ptr += row * n
    grad_ptr += row * n
    out_ptr += row * n
    total, weighted = slope_sums(state_ptr, grad_ptr, 0, n, GATE, BLOCK)
    t = tl.load(t_ptr + row)
    mean = write_product(state_ptr, grad_ptr, out_ptr, 0, n, total, weighted, t, GATE, BLOCK)
    tl.store(mean_ptr + row, mean)
