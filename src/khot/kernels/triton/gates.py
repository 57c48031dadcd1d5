"""The threshold family in Triton: weights, state and Jacobian products.

The solver is that of ``khot.relaxations.threshold._newton``: Newton's method on log P − log Q from the middle
of a bracket around the ⌈k⌉-th largest. For the sparse gate it is a bracketed Newton search in [0, 1].
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.rows import block_of, kth_key, per_row, read, value_of_key, warps_of

__all__ = ["gate_jacobian", "gated_topk"]

GATES = {"logistic": 0, "laplace": 1, "sparse": 2}


def gated_topk(
    gate: str, x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, norm: float
) -> tuple[Tensor, Tensor]:
    """Weights in the type of x, and the float32 state, as ``khot.kernels.cpu.gated_topk`` gives them."""
    del norm  # 2: see khot.kernels.triton.serves
    shape, n = x.shape, x.shape[-1]
    x = x.contiguous()
    y, state = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    if x.numel() == 0:
        return y, state
    kept = x if mask is None else mask.expand(shape).contiguous().view(torch.uint8)
    budgets, temperatures = per_row(k, shape, torch.float32), per_row(temperature, shape, torch.float32)
    block = block_of(n)
    with torch.cuda.device_of(x):
        gated_kernel[(x.numel() // n,)](
            x,
            kept,
            budgets,
            temperatures,
            y,
            state,
            n,
            GATE=GATES[gate],
            HAS_MASK=mask is not None,
            STEPS=24 if gate == "sparse" else 8,
            BLOCK=block,
            num_warps=warps_of(block),
        )
    return y, state


def gate_jacobian(
    state: Tensor, grad: Tensor, temperature: Tensor, gate: str, norm: float
) -> tuple[Tensor, Tensor]:
    """The Jacobian times a vector and the mean in it, as ``khot.kernels.cpu.gate_jacobian`` gives them."""
    del norm
    shape, n = state.shape, state.shape[-1]
    state, grad = state.contiguous(), grad.to(torch.float32).contiguous()
    out, mean = torch.empty_like(state), state.new_zeros(*shape[:-1], 1)
    if state.numel() == 0:
        return out, mean
    temperatures = per_row(temperature, shape, torch.float32)
    block = block_of(n)
    with torch.cuda.device_of(state):
        jacobian_kernel[(state.numel() // n,)](
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
def _tail(a, GATE: tl.constexpr):
    """F(a) and F′(a), exact in a relative sense for a → −∞."""
    if GATE == 0:
        small = tl.exp(-tl.abs(a))
        p = tl.where(a > 0, 1.0, small) / (1 + small)
        return p, small / ((1 + small) * (1 + small))
    slope = tl.exp(-tl.abs(a)) * 0.5
    return tl.where(a > 0, 1 - slope, slope), slope


@triton.jit
def _quantile(part, remainder, whole, GATE: tl.constexpr):
    p, q = tl.maximum(part / whole, 1.2e-38), tl.maximum(remainder / whole, 1.2e-38)
    if GATE == 0:
        return tl.log(p) - tl.log(q)
    return tl.where(p < q, tl.log(2 * p), -tl.log(2 * q))


@triton.jit
def _distance(x, half_anchor, half_t):
    """(x − anchor)/τ, at most 1e4 and −1e4 where excluded; differences of halves cannot overflow."""
    half = tl.minimum(tl.maximum(x, -3.4028234e38), 3.4028234e38) * 0.5
    z = tl.minimum(tl.maximum((half - half_anchor) / half_t, -1e4), 1e4)
    return tl.where(x == -float("inf"), -1e4, z)


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
    """One row of scores → its weights and state."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    mask_ptr += row * n
    y_ptr += row * n
    state_ptr += row * n
    k, half_t = tl.load(k_ptr + row), tl.load(t_ptr + row) * 0.5
    size = n.to(tl.float32)
    rank = tl.minimum(tl.maximum(tl.ceil(k), 1.0), size).to(tl.int32)
    key = kth_key(x_ptr, mask_ptr, n, rank, HAS_MASK, BLOCK)
    anchor = value_of_key(key)
    half_anchor = tl.minimum(tl.maximum(anchor, -3.4028234e38), 3.4028234e38) * 0.5

    # Who is above the anchor, ties included and not; the next best below it; whether there is a NaN.
    strictly, weakly, invalid = tl.zeros((), tl.int32), tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    below, allowed = -float("inf"), tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, n, HAS_MASK)
        z = _distance(x, half_anchor, half_t)
        allowed += tl.sum((x != -float("inf")).to(tl.int32), 0)
        strictly += tl.sum(((z > 0) & (at < n)).to(tl.int32), 0)
        weakly += tl.sum(((z >= 0) & (at < n)).to(tl.int32), 0)
        invalid += tl.sum((x != x).to(tl.int32), 0)
        below = tl.maximum(below, tl.max(tl.where(x < anchor, x, -float("inf")), 0))
    movable = tl.where(k > 0, tl.where(k < allowed.to(tl.float32), 1, 0), 0)
    n_strictly, n_weakly = strictly.to(tl.float32), weakly.to(tl.float32)
    next_is_level = n_weakly >= tl.floor(k) + 1
    half_below = tl.maximum(below, -3.4028234e38) * 0.5
    half_gap = tl.where(next_is_level, 0.0, tl.minimum((half_anchor - half_below) / half_t * 0.5, 5e3))

    if GATE == 2:
        low, high = tl.zeros((), tl.float32), tl.full((), 1.0, tl.float32)
        e = (low + high) * 0.5
        for _ in range(STEPS):
            inside, count, full = 0.0, 0.0, 0.0
            for start in range(0, n, BLOCK):
                at = start + tl.arange(0, BLOCK)
                x = read(x_ptr, mask_ptr, at, n, HAS_MASK)
                a = tl.where(at < n, _distance(x, half_anchor, half_t) + e, -1.0)
                between = (a > 0) & (a < 1)
                inside += tl.sum(tl.where(between, a, 0.0), 0)
                count += tl.sum(between.to(tl.float32), 0)
                full += tl.sum((a >= 1).to(tl.float32), 0)
            f = inside - (k - full)
            low, high = tl.where(f < 0, e, low), tl.where(f > 0, e, high)
            proposal = e - f / tl.maximum(count, 1.0)
            in_bracket = (proposal >= low) & (proposal <= high) & (count > 0)
            e = tl.where(f == 0, e, tl.where(in_bracket, proposal, (low + high) * 0.5))
    else:
        ties_below = k - n_strictly <= n_weakly - k  # ties go to the nearer side
        excess = tl.where(ties_below, n_strictly, n_weakly) - k
        edge = tl.where(ties_below, 0.0, -1e-37)  # above is z > this
        extra_p, extra_q = tl.maximum(excess, 1.2e-38), tl.maximum(-excess, 1.2e-38)
        up, down = tl.ceil(k), tl.floor(k)
        low = _quantile(k - (up - 1), size - k, size - up + 1, GATE)
        rest = tl.minimum(down + 1, size)
        high = _quantile(k, rest - k, rest, GATE)
        middle, width = (low + high) * 0.5 + half_gap, (high - low) * 0.5 + 1 + half_gap
        e = middle
        for _ in range(STEPS):
            big_p, big_q, slope_p, slope_q = extra_p, extra_q, 0.0, 0.0
            for start in range(0, n, BLOCK):
                at = start + tl.arange(0, BLOCK)
                z = _distance(read(x_ptr, mask_ptr, at, n, HAS_MASK), half_anchor, half_t)
                above = z > edge
                p, slope = _tail(tl.where(above, -(z + e), z + e), GATE)
                p, slope = tl.where(at < n, p, 0.0), tl.where(at < n, slope, 0.0)
                big_p += tl.sum(tl.where(above, 0.0, p), 0)
                big_q += tl.sum(tl.where(above, p, 0.0), 0)
                slope_p += tl.sum(tl.where(above, 0.0, slope), 0)
                slope_q += tl.sum(tl.where(above, slope, 0.0), 0)
            h = tl.log(big_p) - tl.log(big_q)
            e -= h / (slope_p / big_p + slope_q / big_q + 1.2e-38)
            e = tl.minimum(tl.maximum(e, middle - width), middle + width)

    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, n, HAS_MASK)
        a = _distance(x, half_anchor, half_t) + e
        if GATE == 2:
            y = tl.minimum(tl.maximum(a, 0.0), 1.0)
            state = y
        else:
            y = _tail(a, GATE)[0]
            tail = _tail(-tl.abs(a), GATE)[0]
            state = tl.where(a > 0, -tail, tail)
        y = tl.where(k > 0, y, 0.0)
        state = tl.where(tl.abs(x) == float("inf"), 0.0, tl.where(movable > 0, state, 0.0))
        y, state = tl.where(invalid > 0, float("nan"), y), tl.where(invalid > 0, float("nan"), state)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)
        tl.store(state_ptr + at, state, mask=at < n)


@triton.jit
def _slope(state, GATE: tl.constexpr):
    if GATE == 0:
        return tl.abs(state) * (1 - tl.abs(state))
    if GATE == 1:
        return tl.abs(state)
    return ((state > 0) & (state < 1)).to(tl.float32)


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
    """One row: w(g − Σwg/Σw)/τ and Σwg/Σw; what has no slope takes no part."""
    row = tl.program_id(0).to(tl.int64)
    state_ptr += row * n
    grad_ptr += row * n
    out_ptr += row * n
    total, weighted = 0.0, 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = _slope(tl.load(state_ptr + at, mask=at < n, other=0.0), GATE)
        g = tl.load(grad_ptr + at, mask=at < n, other=0.0)
        total += tl.sum(w, 0)
        weighted += tl.sum(tl.where(w == 0, 0.0, w * g), 0)
    mean = tl.where(total > 0, weighted / tl.where(total > 0, total, 1.0), 0.0)
    mean = tl.where(total != total, total, mean)
    t = tl.load(t_ptr + row)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = _slope(tl.load(state_ptr + at, mask=at < n, other=0.0), GATE)
        g = tl.load(grad_ptr + at, mask=at < n, other=0.0)
        tl.store(out_ptr + at, tl.where(w == 0, 0.0, w * (g - mean) / t), mask=at < n)
    tl.store(mean_ptr + row, mean)
