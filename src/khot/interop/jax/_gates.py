"""The functions F of the threshold family in JAX; see ``khot.relaxations.threshold._gates``."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["LAPLACE", "LOGISTIC", "Gate", "sparse_gate"]


class Gate(NamedTuple):
    """One F: the function, its tail and slope, its quantile, and the slopes and shares of a row."""

    weights: Any
    tail: Any  # a → F(a), F′(a), exact in a relative sense for a → −∞; None for the sparse gate
    quantile: Any
    slopes: Any  # a, which entries may move → F′(a) of those, and F′/ΣF′
    steps: tuple[int, int] = (8, 10)  # in float32 and in float64
    norm: float = 2.0  # of the sparse gate


def _logistic_tail(a: Any) -> tuple[Any, Any]:
    p = jax.nn.sigmoid(a)
    return p, p * (1 - p)


def _laplace_tail(a: Any) -> tuple[Any, Any]:
    slope = jnp.exp(-jnp.abs(a)) / 2
    return jnp.where(a > 0, 1 - slope, slope), slope


def _logistic_slopes(a: Any, may_move: Any) -> tuple[Any, Any]:
    p = jax.nn.sigmoid(-jnp.abs(a))
    return _shared(p * (1 - p), -jnp.abs(a) - 2 * jnp.log1p(jnp.exp(-jnp.abs(a))), may_move)


def _laplace_slopes(a: Any, may_move: Any) -> tuple[Any, Any]:
    return _shared(jnp.exp(-jnp.abs(a)) / 2, -jnp.abs(a), may_move)


def _shared(slope: Any, log_slope: Any, may_move: Any) -> tuple[Any, Any]:
    share = jax.nn.softmax(jnp.where(may_move, log_slope, -1e30), -1)
    return jnp.where(may_move, slope, 0), jnp.where(may_move, share, 0)


LOGISTIC = Gate(jax.nn.sigmoid, _logistic_tail, lambda p, q: jnp.log(p) - jnp.log(q), _logistic_slopes)
LAPLACE = Gate(
    lambda a: _laplace_tail(a)[0],
    _laplace_tail,
    lambda p, q: jnp.where(p < q, jnp.log(2 * p), -jnp.log(2 * q)),
    _laplace_slopes,
)


@functools.cache
def sparse_gate(norm: float) -> Gate:
    """F(a) = a^{1/(q−1)} clipped to [0, 1], for q = ``norm`` in (1, 2]; the same object for the same q."""
    power = 1 / (norm - 1)

    def weights(a: Any) -> Any:
        base = jnp.clip(a, 0, 1)
        return base if norm == 2 else base**power

    def slopes(a: Any, may_move: Any) -> tuple[Any, Any]:
        inside = may_move & (a > 0) & (a < 1)
        base = jnp.where(inside, a, 1)
        slope = jnp.where(inside, jnp.ones_like(a) if norm == 2 else power * base ** (power - 1), 0)
        return slope, slope / jnp.maximum(slope.sum(-1, keepdims=True), jnp.finfo(a.dtype).tiny)

    return Gate(weights, None, None, slopes, (36, 60), norm)
