"""The threshold in JAX: Newton's method for smooth gates, breakpoints for the sparse one of norm 2.

The steps are those of ``khot.relaxations.threshold._newton`` and ``_breakpoints``, which say why they are
right. Sparse gates of other norms use a bracketed search: the anchor is the ⌈k⌉-th largest score; its weight
lies in [0, 1], and so does its (x + c)/τ.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from khot.interop.jax._gates import Gate

__all__ = ["solve"]

FAR = 1e4  # in units of τ from the anchor: a weight is 0 or 1


def solve(gate: Gate, x: Any, k: Any, temperature: Any) -> Any:
    """a = (x + c)/τ of rows (…, n) with budgets and temperatures (…, 1); n > 0."""
    n, largest = x.shape[-1], jnp.finfo(x.dtype).max
    half = jnp.clip(x, -largest, largest) / 2  # differences of halves cannot overflow
    best = jnp.flip(jnp.sort(half, -1), -1)
    at, beside = (jnp.clip(i.astype(jnp.int32), 0, n - 1) for i in (jnp.ceil(k) - 1, jnp.floor(k)))
    anchor, next_best = (jnp.take_along_axis(best, i, -1) for i in (at, beside))
    z = jnp.clip((half - anchor) / (temperature / 2), -FAR, FAR)
    z = jnp.where(x == -jnp.inf, -FAR, z)
    if gate.tail is None:
        return _by_breakpoints(z, k) if gate.norm == 2 else _by_search(gate, z, k)
    return z + _offset(gate, z, k, jnp.minimum((anchor - next_best) / temperature, FAR / 2))


def _offset(gate: Gate, z: Any, k: Any, half_gap: Any) -> Any:
    n, tiny = z.shape[-1], jnp.finfo(z.dtype).tiny
    others, rest = n - jnp.ceil(k) + 1, jnp.minimum(jnp.floor(k) + 1, n)

    def quantile(part: Any, remainder: Any, whole: Any) -> Any:
        return gate.quantile(jnp.maximum(part / whole, tiny), jnp.maximum(remainder / whole, tiny))

    low = quantile(k - (jnp.ceil(k) - 1), n - k, others)
    high = quantile(k, rest - k, rest)
    strictly, weakly = z > 0, z >= 0
    n_strictly, n_weakly = (jnp.sum(c, -1, keepdims=True).astype(z.dtype) for c in (strictly, weakly))
    ties_below = k - n_strictly <= n_weakly - k  # ties go to the nearer side
    above = strictly | (weakly & ~ties_below)
    excess = jnp.where(ties_below, n_strictly, n_weakly) - k
    below_distance, above_distance = jnp.where(above, -2 * FAR, z), jnp.where(above, -z, -2 * FAR)
    extra_p, extra_q = jnp.maximum(excess, tiny), jnp.maximum(-excess, tiny)
    middle, width = (low + high) / 2 + half_gap, (high - low) / 2 + 1 + half_gap

    def step(_: Any, e: Any) -> Any:
        (p, p_slope), (q, q_slope) = gate.tail(below_distance + e), gate.tail(above_distance - e)
        big_p, big_q = p.sum(-1, keepdims=True) + extra_p, q.sum(-1, keepdims=True) + extra_q
        slope = p_slope.sum(-1, keepdims=True) / big_p + q_slope.sum(-1, keepdims=True) / big_q
        moved = e - (jnp.log(big_p) - jnp.log(big_q)) / (slope + tiny)
        return jnp.clip(moved, middle - width, middle + width)

    return jax.lax.fori_loop(0, gate.steps[z.dtype == jnp.float64], step, middle)


def _by_breakpoints(z: Any, k: Any) -> Any:
    upper = (z >= 0).astype(z.dtype)
    breakpoints = jnp.clip(upper - z, 0, 1)
    order = jnp.argsort(breakpoints, -1)
    breakpoints = jnp.take_along_axis(breakpoints, order, -1)
    turns = 1 - 2 * jnp.take_along_axis(upper, order, -1)  # what each adds to the slope of the sum
    slopes = upper.sum(-1, keepdims=True) + jnp.cumsum(turns, -1) - turns
    lengths = jnp.diff(breakpoints, axis=-1, prepend=0)
    at_zero = (jnp.minimum(z, 1) * upper).sum(-1, keepdims=True)
    reached = at_zero + jnp.cumsum(slopes * lengths, -1) <= k
    below = jnp.where(reached, breakpoints, 0).max(-1, keepdims=True)
    a = z + (below + jnp.where(reached, 1, breakpoints).min(-1, keepdims=True)) / 2
    for _ in range(3):
        inside = ((a > 0) & (a < 1)).astype(z.dtype)
        left = k - (a >= 1).sum(-1, keepdims=True)
        count = jnp.maximum(inside.sum(-1, keepdims=True), 1)
        a = a - ((a * inside).sum(-1, keepdims=True) - left) / count
    return a


def _by_search(gate: Gate, z: Any, k: Any) -> Any:
    """Newton's method on (ΣF over 0 < a < 1)^{q−1}, nearly linear in the offset; each third step halves."""
    power = gate.norm - 1

    def sums(a: Any) -> tuple[Any, Any, Any]:
        """The sums of the weights between 0 and 1 and of their slopes, and the part of k left for them."""
        y = gate.weights(a)
        slope = gate.slopes(a, a < 1)[0].sum(-1, keepdims=True)
        inside = jnp.where(a < 1, y, 0).sum(-1, keepdims=True)
        return inside, slope, k - (a >= 1).sum(-1, keepdims=True)

    def step(i: Any, search: Any) -> Any:
        e, low, high = search
        inside, slope, left = sums(z + e)
        low, high = jnp.where(inside < left, e, low), jnp.where(inside > left, e, high)
        scale = jnp.maximum(slope * power, jnp.finfo(z.dtype).tiny)
        moved = e - (inside - inside ** (1 - power) * jnp.maximum(left, 0) ** power) / scale
        good = (moved > low) & (moved < high) & (slope > 0) & (i % 3 != 2)
        return jnp.where(inside == left, e, jnp.where(good, moved, (low + high) / 2)), low, high

    half = jnp.full_like(k, 0.5)
    e, _, _ = jax.lax.fori_loop(0, gate.steps[z.dtype == jnp.float64], step, (half, half * 0, half * 2))
    a = z + e
    resolution = 8 * jnp.finfo(z.dtype).eps * e  # the digits that the offset could not hold
    for _ in range(2):
        inside, slope, left = sums(a)
        off = (inside - left) / jnp.maximum(slope, jnp.finfo(z.dtype).tiny)
        a = jnp.where(jnp.abs(off) <= resolution, a - off, a)
    return a
