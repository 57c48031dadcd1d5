"""The threshold family in JAX: yᵢ = F((xᵢ + c)/τ), c such that Σy = k.

Values and derivatives are those of ``khot.relaxations.threshold``. There is one tangent rule, and it is
linear: forward mode uses it as it is, and JAX transposes it for reverse mode. Every part of it has such a
rule itself, so all orders of derivatives are right.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from khot.interop.jax._arguments import allowed, budget, check_positive, per_row, position, straight_through
from khot.interop.jax._gates import LAPLACE, LOGISTIC, Gate, sparse_gate
from khot.interop.jax._solver import solve
from khot.interop.jax.hard import hard_topk
from khot.relaxations._plain_arguments import check_switch

__all__ = ["laplace_topk", "sigmoid_topk", "sparse_topk"]


def sigmoid_topk(
    scores: Any,
    k: Any,
    *,
    temperature: Any = 1.0,
    axis: int = -1,
    mask: Any = None,
    largest: bool = True,
    hard: bool = False,
) -> Any:
    """Relax the indicator of the ``k`` largest ``scores`` along ``axis``: `khot.sigmoid_topk`.

    Differentiable in ``scores``, ``k`` and ``temperature``, any number of times.

    Args:
        scores: a floating-point array of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n, any real number; or an array that broadcasts to ``scores.shape`` without
            ``axis``.
        temperature: > 0, a number or an array like ``k``; the hard top-k is the limit at 0.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> [round(v, 3) for v in sigmoid_topk(jnp.array([3.0, 1.0, 2.0]), 2).tolist()]
        [0.859, 0.451, 0.691]
    """
    return _topk("sigmoid_topk", LOGISTIC, scores, k, temperature, axis, mask, largest, hard)


def laplace_topk(
    scores: Any,
    k: Any,
    *,
    temperature: Any = 1.0,
    axis: int = -1,
    mask: Any = None,
    largest: bool = True,
    hard: bool = False,
) -> Any:
    """Relax the indicator of the ``k`` largest ``scores`` with Laplace gates: `khot.laplace_topk`.

    Args:
        scores: a floating-point array of any shape. −inf is never selected, +inf always.
        k: budget, as in `sigmoid_topk`.
        temperature: > 0, a number or an array like ``k``.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> [round(v, 3) for v in laplace_topk(jnp.array([3.0, 1.0, 2.0]), 2).tolist()]
        [0.905, 0.355, 0.741]
    """
    return _topk("laplace_topk", LAPLACE, scores, k, temperature, axis, mask, largest, hard)


def sparse_topk(
    scores: Any,
    k: Any,
    *,
    norm: float = 2.0,
    temperature: Any = 1.0,
    axis: int = -1,
    mask: Any = None,
    largest: bool = True,
    hard: bool = False,
) -> Any:
    """Relax the indicator of the ``k`` largest ``scores`` with exact zeros and ones: `khot.sparse_topk`.

    Args:
        scores: a floating-point array of any shape. −inf is never selected, +inf always.
        k: budget, as in `sigmoid_topk`.
        norm: a number in (1, 2], not traced; 2 is the Euclidean projection on the capped simplex.
        temperature: > 0, a number or an array like ``k``.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> sparse_topk(jnp.array([3.0, 1.0, 2.0]), 2, temperature=0.5).tolist()
        [1.0, 0.0, 1.0]
    """
    if isinstance(norm, bool) or not isinstance(norm, (int, float)):
        raise TypeError(f"sparse_topk: norm must be a number, got {type(norm).__name__}")
    if not 1 < norm <= 2:
        raise ValueError(f"sparse_topk: norm must be in (1, 2], got {norm}")
    gate = sparse_gate(float(norm))
    return _topk("sparse_topk", gate, scores, k, temperature, axis, mask, largest, hard)


def _topk(
    name: str,
    gate: Gate,
    scores: Any,
    k: Any,
    temperature: Any,
    axis: int,
    mask: Any,
    largest: bool,
    hard: bool,
) -> Any:
    scores = jnp.asarray(scores)
    last = position(name, scores, axis)
    budgets = budget(name, k, scores, last)
    check_positive(name, temperature)
    check_switch(name, "hard", hard)
    x = allowed(name, scores, mask, largest, last)
    if x.shape[-1] == 0:
        return scores
    tau = per_row(name, "temperature", temperature, scores, last)
    tau = jnp.clip(tau, jnp.finfo(x.dtype).tiny, jnp.finfo(x.dtype).max)
    y = jnp.moveaxis(_weights(gate, x, budgets, tau), -1, last).astype(scores.dtype)
    return straight_through(y, hard_topk(scores, k, axis=last, mask=mask, largest=largest)) if hard else y


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _argument(gate: Gate, x: Any, k: Any, temperature: Any) -> Any:
    """(x + c)/τ of rows (…, n); far from 0 where a score is infinite."""
    return solve(gate, x, k, temperature)


@_argument.defjvp
def _argument_tangent(gate: Gate, primals: Any, tangents: Any) -> tuple[Any, Any]:
    a = _argument(gate, *primals)
    motion, slope, _ = _motion(gate, a, primals, tangents)
    total = jnp.maximum(slope.sum(-1, keepdims=True), jnp.finfo(a.dtype).tiny)
    return a, jnp.where(slope > 0, motion + tangents[1] / total, 0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _weights(gate: Gate, x: Any, k: Any, temperature: Any) -> Any:
    return jnp.where(k > 0, gate.weights(_argument(gate, x, k, temperature)), 0)


@_weights.defjvp
def _weights_tangent(gate: Gate, primals: Any, tangents: Any) -> tuple[Any, Any]:
    motion, slope, share = _motion(gate, _argument(gate, *primals), primals, tangents)
    return _weights(gate, *primals), slope * motion + share * tangents[1]


def _motion(gate: Gate, a: Any, primals: Any, tangents: Any) -> tuple[Any, Any, Any]:
    """The tangent of (x + c)/τ at constant k; F′ there; and F′/ΣF′, the share of each entry in a change of k.

    The ratio is computed from logarithms, so it exists even if every F′ is too small for a float.
    """
    x, k, temperature = primals
    dx, _, dt = tangents
    is_open = (k > 0) & (k < (x > -jnp.inf).sum(-1, keepdims=True))
    slope, share = gate.slopes(a, is_open & jnp.isfinite(x))
    moving = share > 0
    # Any constant will do for the derivative in τ: one near those that count costs no digits.
    centre = jnp.take_along_axis(x, jnp.argmax(share, -1, keepdims=True), -1)
    apart = jnp.where(moving, x, 0) / 2 - jax.lax.stop_gradient(jnp.where(moving, centre, 0)) / 2
    v = jnp.where(moving, dx, 0) / temperature - apart / (temperature / 2) / temperature * dt
    return jnp.where(moving, v - (share * v).sum(-1, keepdims=True), 0), slope, share
