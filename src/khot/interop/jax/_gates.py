"""The functions F of the threshold family in JAX; see ``khot.relaxations.threshold._gates``."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["GATES", "Gate"]


class Gate(NamedTuple):
    """One F: itself, its tail and slope, its quantile, and the slopes and shares of a row."""

    weights: Any
    tail: Any  # a → F(a), F′(a), exact in a relative sense for a → −∞; None for the sparse gate
    quantile: Any
    slopes: Any  # a, which entries may move → F′(a) of those, and F′/ΣF′
    steps: tuple[int, int] = (8, 10)


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


def _sparse_slopes(a: Any, may_move: Any) -> tuple[Any, Any]:
    slope = (may_move & (a > 0) & (a < 1)).astype(a.dtype)
    return slope, slope / jnp.maximum(slope.sum(-1, keepdims=True), 1)


def _shared(slope: Any, log_slope: Any, may_move: Any) -> tuple[Any, Any]:
    share = jax.nn.softmax(jnp.where(may_move, log_slope, -1e30), -1)
    return jnp.where(may_move, slope, 0), jnp.where(may_move, share, 0)


GATES = {
    "logistic": Gate(jax.nn.sigmoid, _logistic_tail, lambda p, q: jnp.log(p) - jnp.log(q), _logistic_slopes),
    "laplace": Gate(
        lambda a: _laplace_tail(a)[0],
        _laplace_tail,
        lambda p, q: jnp.where(p < q, jnp.log(2 * p), -jnp.log(2 * q)),
        _laplace_slopes,
    ),
    "sparse": Gate(lambda a: jnp.clip(a, 0, 1), None, None, _sparse_slopes),
}
