"""The threshold family in Triton for rows that are split over several programs.

Finding the anchor takes four launches (``digits.py``), the survey of its neighbours one, each step of the
solver one, and writing one: 14 for the sigmoid and Laplace gates, 30 for the sparse one. Each launch adds up
the sums that the one before left. Each step has its own memory, so no program overwrites what another still
reads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from khot.kernels.triton.digits import count_digits, pick, score_key
from khot.kernels.triton.rows import block_of, split, value_of_key, warps_of
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

__all__ = ["GATES", "long_gated_topk", "long_jacobian", "steps_of"]

GATES = {"logistic": 0, "laplace": 1, "sparse": 2}


def steps_of(gate: str) -> int:
    """The number of steps of the solver."""
    return 24 if gate == "sparse" else 8


def long_gated_topk(
    gate: str, x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None, y: Tensor, state: Tensor
) -> None:
    """Write the weights and the state of x (rows, n), with one k and one temperature per row."""
    rows, n = x.shape
    (parts, length), block, steps = split(rows, n), block_of(n), steps_of(gate)
    rank = k.view(rows, 1).ceil().clamp(1, n).to(torch.int32).clamp_max(n)  # float32 may round n up
    picks = count_digits(x, mask, rank, parts, length, block)
    levels = torch.empty(rows, parts, 4, dtype=torch.int32, device=x.device)
    below = torch.empty(rows, parts, dtype=torch.float32, device=x.device)
    of_steps = torch.empty(steps, rows, parts, 4, dtype=torch.float32, device=x.device)
    brackets = torch.empty(steps, rows, 3, dtype=torch.float32, device=x.device)
    row = (x, x if mask is None else mask, k, temperature)
    found = (picks.found, levels, below)
    shape = {"HAS_MASK": mask is not None, "BLOCK": block, "num_warps": warps_of(block)}
    gated = {"GATE": GATES[gate], "PARTS": triton.next_power_of_2(parts), **shape}
    survey_kernel[(rows, parts)](*row, *picks, levels, below, n, length, **shape)
    for i in range(steps):
        last = max(i - 1, 0)
        step_kernel[(rows, parts)](
            *row, *found, of_steps[last], brackets[last], of_steps[i], brackets[i], n, length, parts, i,
            FIRST=i == 0, **gated,
        )  # fmt: skip
    write_kernel[(rows, parts)](
        *row, *found, of_steps[-1], brackets[-1], y, state, n, length, parts, steps - 1, **gated
    )


def long_jacobian(
    gate: str, state: Tensor, grad: Tensor, temperature: Tensor, out: Tensor, mean: Tensor
) -> None:
    """Write the Jacobian product for rows (rows, n), and the mean in it."""
    rows, n = state.shape
    (parts, length), block = split(rows, n), block_of(n)
    of_parts = torch.empty(rows, parts, 2, dtype=torch.float32, device=state.device)
    shape = {"GATE": GATES[gate], "BLOCK": block, "num_warps": warps_of(block)}
    slopes_kernel[(rows, parts)](state, grad, of_parts, n, length, **shape)
    product_kernel[(rows, parts)](
        state, grad, of_parts, temperature, out, mean, n, length, parts,
        PARTS=triton.next_power_of_2(parts), **shape,
    )  # fmt: skip


@triton.jit
def survey_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    t_ptr,
    counts_ptr,
    before_ptr,
    found_ptr,
    levels_ptr,
    below_ptr,
    n,
    length,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: the anchor, and how its entries lie around it."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    prefix, rank = pick(counts_ptr, before_ptr, row, 0)
    if part == 0:
        tl.store(found_ptr + row * 2, prefix)
        tl.store(found_ptr + row * 2 + 1, rank)
    half_t = tl.load(t_ptr + row) * 0.5
    begin, end = part * length, tl.minimum(n, (part + 1) * length)
    strictly, weakly, allowed, invalid, below = survey(
        x_ptr + row * n, mask_ptr + row * n, begin, end, value_of_key(score_key(prefix)), half_t,
        HAS_MASK, BLOCK,
    )  # fmt: skip
    place = row * tl.num_programs(1) + part
    tl.store(levels_ptr + place * 4, strictly)
    tl.store(levels_ptr + place * 4 + 1, weakly)
    tl.store(levels_ptr + place * 4 + 2, allowed)
    tl.store(levels_ptr + place * 4 + 3, invalid)
    tl.store(below_ptr + place, below)


@triton.jit
def _added(sums_ptr, row, parts, number, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """One of the sums of a row, added over its parts."""
    part = tl.arange(0, PARTS)
    at = (row * parts + part) * WIDTH + number
    return tl.sum(tl.load(sums_ptr + at, mask=part < parts, other=0), 0)


@triton.jit
def _opened(
    k, n, half_t, found_ptr, levels_ptr, below_ptr, row, parts, GATE: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """The anchor and the start of the search, from the sums of all parts."""
    half_anchor = half_of(value_of_key(score_key(tl.load(found_ptr + row * 2))))
    strictly = _added(levels_ptr, row, parts, 0, 4, PARTS)
    weakly = _added(levels_ptr, row, parts, 1, 4, PARTS)
    part = tl.arange(0, PARTS)
    below = tl.max(tl.load(below_ptr + row * parts + part, mask=part < parts, other=-float("inf")), 0)
    e, low, high, excess, edge = opening(k, n, half_t, half_anchor, strictly, weakly, below, GATE)
    return half_anchor, e, low, high, excess, edge


@triton.jit
def _advanced(
    step, k, excess, sums_ptr, bracket_ptr, row, parts, GATE: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """The offset and its bracket after the last step."""
    e, low = tl.load(bracket_ptr + row * 3), tl.load(bracket_ptr + row * 3 + 1)
    high = tl.load(bracket_ptr + row * 3 + 2)
    one, two = _added(sums_ptr, row, parts, 0, 4, PARTS), _added(sums_ptr, row, parts, 1, 4, PARTS)
    three, four = _added(sums_ptr, row, parts, 2, 4, PARTS), _added(sums_ptr, row, parts, 3, 4, PARTS)
    return advance(step, k, e, low, high, excess, one, two, three, four, GATE)


@triton.jit(do_not_specialize=["step"])
def step_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    t_ptr,
    found_ptr,
    levels_ptr,
    below_ptr,
    old_sums_ptr,
    old_bracket_ptr,
    sums_ptr,
    bracket_ptr,
    n,
    length,
    parts,
    step,
    FIRST: tl.constexpr,
    GATE: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: the sums at the offset that the sums of the last step give."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, half_t = tl.load(k_ptr + row), tl.load(t_ptr + row) * 0.5
    half_anchor, e, low, high, excess, edge = _opened(
        k, n, half_t, found_ptr, levels_ptr, below_ptr, row, parts, GATE, PARTS
    )
    if not FIRST:
        e, low, high = _advanced(step - 1, k, excess, old_sums_ptr, old_bracket_ptr, row, parts, GATE, PARTS)
    if part == 0:
        tl.store(bracket_ptr + row * 3, e)
        tl.store(bracket_ptr + row * 3 + 1, low)
        tl.store(bracket_ptr + row * 3 + 2, high)
    begin, end = part * length, tl.minimum(n, (part + 1) * length)
    one, two, three, four = sums(
        x_ptr + row * n, mask_ptr + row * n, begin, end, half_anchor, half_t, e, edge,
        GATE, HAS_MASK, BLOCK,
    )  # fmt: skip
    place = (row * parts + part) * 4
    tl.store(sums_ptr + place, one)
    tl.store(sums_ptr + place + 1, two)
    tl.store(sums_ptr + place + 2, three)
    tl.store(sums_ptr + place + 3, four)


@triton.jit(do_not_specialize=["step"])
def write_kernel(
    x_ptr,
    mask_ptr,
    k_ptr,
    t_ptr,
    found_ptr,
    levels_ptr,
    below_ptr,
    sums_ptr,
    bracket_ptr,
    y_ptr,
    state_ptr,
    n,
    length,
    parts,
    step,
    GATE: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: its weights and its state, after the last step."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, half_t = tl.load(k_ptr + row), tl.load(t_ptr + row) * 0.5
    half_anchor, _, _, _, excess, _ = _opened(
        k, n, half_t, found_ptr, levels_ptr, below_ptr, row, parts, GATE, PARTS
    )
    e, _, _ = _advanced(step, k, excess, sums_ptr, bracket_ptr, row, parts, GATE, PARTS)
    allowed = _added(levels_ptr, row, parts, 2, 4, PARTS)
    invalid = _added(levels_ptr, row, parts, 3, 4, PARTS)
    write(
        x_ptr + row * n, mask_ptr + row * n, y_ptr + row * n, state_ptr + row * n,
        part * length, tl.minimum(n, (part + 1) * length), half_anchor, half_t, e, k, allowed, invalid,
        GATE, HAS_MASK, BLOCK,
    )  # fmt: skip


@triton.jit
def slopes_kernel(state_ptr, grad_ptr, sums_ptr, n, length, GATE: tl.constexpr, BLOCK: tl.constexpr):
    """For a part of a row: Σw and Σwg."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = part * length, tl.minimum(n, (part + 1) * length)
    total, weighted = slope_sums(state_ptr + row * n, grad_ptr + row * n, begin, end, GATE, BLOCK)
    place = (row * tl.num_programs(1) + part) * 2
    tl.store(sums_ptr + place, total)
    tl.store(sums_ptr + place + 1, weighted)


@triton.jit
def product_kernel(
    state_ptr,
    grad_ptr,
    sums_ptr,
    t_ptr,
    out_ptr,
    mean_ptr,
    n,
    length,
    parts,
    PARTS: tl.constexpr,
    GATE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a part of a row: w(g − Σwg/Σw)/τ."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total, weighted = _added(sums_ptr, row, parts, 0, 2, PARTS), _added(sums_ptr, row, parts, 1, 2, PARTS)
    mean = write_product(
        state_ptr + row * n, grad_ptr + row * n, out_ptr + row * n, part * length,
        tl.minimum(n, (part + 1) * length), total, weighted, tl.load(t_ptr + row), GATE, BLOCK,
    )  # fmt: skip
    if part == 0:
        tl.store(mean_ptr + row, mean)
