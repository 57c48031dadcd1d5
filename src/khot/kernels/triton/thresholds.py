"""The steps of the threshold family on a row, or on a part of a row.

The solver is that of ``khot.relaxations.threshold._newton``: Newton's method on log P − log Q, from the
middle of a bracket around the ⌈k⌉-th largest score, the anchor. For the sparse gate it is a bracketed Newton
search in [0, 1]. Functions with the arguments ``begin`` and ``end`` take the entries between them: a whole
row, or a part whose sums are added to the others later.
"""

from __future__ import annotations

import triton
import triton.language as tl

from khot.kernels.triton.rows import read

__all__ = ["advance", "half_of", "opening", "slope_sums", "sums", "survey", "write", "write_product"]


@triton.jit
def tail(a, GATE: tl.constexpr):
    """F(a) and F′(a), with full relative precision for a → −∞."""
    if GATE == 0:
        small = tl.exp(-tl.abs(a))
        p = tl.where(a > 0, 1.0, small) / (1 + small)
        return p, small / ((1 + small) * (1 + small))
    slope = tl.exp(-tl.abs(a)) * 0.5
    return tl.where(a > 0, 1 - slope, slope), slope


@triton.jit
def quantile(part, remainder, whole, GATE: tl.constexpr):
    """F⁻¹(part / whole), where part + remainder = whole."""
    p, q = tl.maximum(part / whole, 1.2e-38), tl.maximum(remainder / whole, 1.2e-38)
    if GATE == 0:
        return tl.log(p) - tl.log(q)
    return tl.where(p < q, tl.log(2 * p), -tl.log(2 * q))


@triton.jit
def half_of(x):
    """Half of a score, made finite: differences of halves cannot overflow."""
    return tl.minimum(tl.maximum(x, -3.4028234e38), 3.4028234e38) * 0.5


@triton.jit
def distance(x, half_anchor, half_t):
    """(x − anchor)/τ, cut off at ±1e4; −1e4 for an excluded entry."""
    z = tl.minimum(tl.maximum((half_of(x) - half_anchor) / half_t, -1e4), 1e4)
    return tl.where(x == -float("inf"), -1e4, z)


@triton.jit
def survey(
    x_ptr, mask_ptr, begin, end, anchor, half_t, HAS_MASK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """How many entries are above the anchor, at least the anchor, allowed, NaN; and the next one below."""
    strictly, weakly = tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    allowed, invalid = tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    below = -float("inf")
    half_anchor = half_of(anchor)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, end, HAS_MASK)
        z = distance(x, half_anchor, half_t)
        strictly += tl.sum((z > 0).to(tl.int32), 0)
        weakly += tl.sum((z >= 0).to(tl.int32), 0)
        allowed += tl.sum((x != -float("inf")).to(tl.int32), 0)
        invalid += tl.sum((x != x).to(tl.int32), 0)
        below = tl.maximum(below, tl.max(tl.where(x < anchor, x, -float("inf")), 0))
    return strictly, weakly, allowed, invalid, below


@triton.jit
def opening(k, n, half_t, half_anchor, strictly, weakly, below, GATE: tl.constexpr):
    """The first offset, the ends of its bracket, how many entries above the anchor exceed k, and the edge.

    An entry is above if its distance is larger than the edge; ties with the anchor go to the nearer side.
    """
    n_strictly, n_weakly = strictly.to(tl.float32), weakly.to(tl.float32)
    size = n + tl.zeros((), tl.float32)  # n = 1 is a constant for Triton, which has no type
    ties_below = k - n_strictly <= n_weakly - k
    excess = tl.where(ties_below, n_strictly, n_weakly) - k
    edge = tl.where(ties_below, 0.0, -1e-37)
    if GATE == 2:
        half = tl.full((), 0.5, tl.float32)
        return half, half - 0.5, half + 0.5, excess, edge
    next_is_level = n_weakly >= tl.floor(k) + 1
    gap = tl.minimum((half_anchor - half_of(below)) / half_t * 0.5, 5e3)
    half_gap = tl.where(next_is_level, 0.0, gap)
    up, down = tl.ceil(k), tl.floor(k)
    rest = tl.minimum(down + 1, size)
    low = quantile(k - (up - 1), size - k, size - up + 1, GATE)
    high = quantile(k, rest - k, rest, GATE)
    middle, width = (low + high) * 0.5 + half_gap, (high - low) * 0.5 + 1 + half_gap
    return middle, middle - width, middle + width, excess, edge


@triton.jit
def sums(
    x_ptr,
    mask_ptr,
    begin,
    end,
    half_anchor,
    half_t,
    e,
    edge,
    GATE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sums at the offset e: tails below and above the anchor, then slopes below and above.

    For the sparse gate: the sum of the weights between 0 and 1, their number, the number of ones, and 0.
    """
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = distance(read(x_ptr, mask_ptr, at, end, HAS_MASK), half_anchor, half_t)
        if GATE == 2:
            a = tl.where(at < end, z + e, -1.0)
            between = (a > 0) & (a < 1)
            one += tl.sum(tl.where(between, a, 0.0), 0)
            two += tl.sum(between.to(tl.float32), 0)
            three += tl.sum((a >= 1).to(tl.float32), 0)
        else:
            above = z > edge
            p, slope = tail(tl.where(above, -(z + e), z + e), GATE)
            p, slope = tl.where(at < end, p, 0.0), tl.where(at < end, slope, 0.0)
            one += tl.sum(tl.where(above, 0.0, p), 0)
            two += tl.sum(tl.where(above, p, 0.0), 0)
            three += tl.sum(tl.where(above, 0.0, slope), 0)
            four += tl.sum(tl.where(above, slope, 0.0), 0)
    return one, two, three, four


@triton.jit
def advance(step, k, e, low, high, excess, one, two, three, four, GATE: tl.constexpr):
    """The next offset and its bracket, from the sums of step number ``step``."""
    if GATE == 2:
        # Newton's method could go back and forth between two kinks: every third step halves the bracket, but
        # for the last ones, and no other may touch its ends.
        f = one - (k - three)
        low, high = tl.where(f < 0, e, low), tl.where(f > 0, e, high)
        proposal = e - f / tl.maximum(two, 1.0)
        good = (proposal > low) & (proposal < high) & (two > 0) & ((step % 3 != 2) | (step >= 18))
        e = tl.where((f == 0) | (proposal == e), e, tl.where(good, proposal, (low + high) * 0.5))
    else:
        big_p, big_q = one + tl.maximum(excess, 1.2e-38), two + tl.maximum(-excess, 1.2e-38)
        h = tl.log(big_p) - tl.log(big_q)
        e -= h / (three / big_p + four / big_q + 1.2e-38)
        e = tl.minimum(tl.maximum(e, low), high)
    return e, low, high


@triton.jit
def write(
    x_ptr,
    mask_ptr,
    y_ptr,
    state_ptr,
    begin,
    end,
    half_anchor,
    half_t,
    e,
    k,
    allowed,
    invalid,
    GATE: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write weights and state at the offset e."""
    movable = tl.where(k > 0, tl.where(k < allowed.to(tl.float32), 1, 0), 0)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = read(x_ptr, mask_ptr, at, end, HAS_MASK)
        a = distance(x, half_anchor, half_t) + e
        if GATE == 2:
            y = tl.minimum(tl.maximum(a, 0.0), 1.0)
            state = y
        else:
            y = tail(a, GATE)[0]
            near = tail(-tl.abs(a), GATE)[0]
            state = tl.where(a > 0, -near, near)
        y = tl.where(k > 0, y, 0.0)
        state = tl.where(tl.abs(x) == float("inf"), 0.0, tl.where(movable > 0, state, 0.0))
        y, state = tl.where(invalid > 0, float("nan"), y), tl.where(invalid > 0, float("nan"), state)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < end)
        tl.store(state_ptr + at, state, mask=at < end)


@triton.jit
def slope_of(state, GATE: tl.constexpr):
    """F′ as a function of the state."""
    if GATE == 0:
        return tl.abs(state) * (1 - tl.abs(state))
    if GATE == 1:
        return tl.abs(state)
    return ((state > 0) & (state < 1)).to(tl.float32)


@triton.jit
def slope_sums(state_ptr, grad_ptr, begin, end, GATE: tl.constexpr, BLOCK: tl.constexpr):
    """Σw and Σwg; entries with slope 0 do not count, whatever g is."""
    total, weighted = 0.0, 0.0
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = slope_of(tl.load(state_ptr + at, mask=at < end, other=0.0), GATE)
        g = tl.load(grad_ptr + at, mask=at < end, other=0.0).to(tl.float32)
        total += tl.sum(w, 0)
        weighted += tl.sum(tl.where(w == 0, 0.0, w * g), 0)
    return total, weighted


@triton.jit
def write_product(
    state_ptr, grad_ptr, out_ptr, begin, end, total, weighted, t, GATE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write w(g − Σwg/Σw)/τ, and return the mean Σwg/Σw."""
    mean = tl.where(total > 0, weighted / tl.where(total > 0, total, 1.0), 0.0)
    mean = tl.where(total != total, total, mean)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = slope_of(tl.load(state_ptr + at, mask=at < end, other=0.0), GATE)
        g = tl.load(grad_ptr + at, mask=at < end, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, tl.where(w == 0, 0.0, w * (g - mean) / t), mask=at < end)
    return mean
