"""Systematic sampling in JAX: k points, one unit apart, on the cumulative sums of π.

Reference: Madow (1949), On the Theory of Systematic Sampling, II.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from khot.interop.jax._arguments import check_k, position
from khot.relaxations._plain_arguments import check_sample_shape

__all__ = ["systematic_sample"]


def systematic_sample(key: Any, probs: Any, k: int, *, sample_shape: tuple[int, ...] = ()) -> Any:
    """Draw exactly ``k`` of n units, each with its inclusion probability.

    Args:
        key: a key of ``jax.random``.
        probs: inclusion probabilities (…, n) with sum k.
        k: how many units to draw; an integer, not traced.
        sample_shape: the shape of the draws, in front of the shape of ``probs``.

    Returns:
        Zeros and ones of shape ``sample_shape + probs.shape`` in the dtype of ``probs``, exactly k ones in
        each row. Without ``jax_enable_x64`` the inclusion probabilities hold to the rounding of float32.

    Example:
        >>> x = systematic_sample(jax.random.key(0), jnp.full(8, 0.25), 2, sample_shape=(100,))
        >>> x.shape, set(x.sum(-1).tolist())
        ((100, 8), {2.0})
    """
    probs = jax.lax.stop_gradient(jnp.asarray(probs))
    position("systematic_sample", probs, -1)
    check_sample_shape("systematic_sample", sample_shape)
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"systematic_sample: k must be an integer, not traced, got {k!r}")
    check_k("systematic_sample", k, probs.shape[-1])
    wide = probs.astype(jnp.promote_types(probs.dtype, jnp.zeros(()).dtype))
    u = jax.random.uniform(key, (*sample_shape, *probs.shape[:-1], 1), wide.dtype)
    return systematic(wide, k, u).astype(probs.dtype)


def systematic(probs: Any, k: int, u: Any) -> Any:
    """The draws for given uniform variables u (*sample_shape, …, 1)."""
    n = probs.shape[-1]
    if k == 0:
        return jnp.zeros((*u.shape[:-1], n), probs.dtype)
    certain = probs >= 1
    size = k - certain.sum(-1, keepdims=True)
    sums = jnp.cumsum(jnp.where(certain, 0, probs), -1)
    total = sums[..., -1:]
    ends = sums / jnp.where(total > 0, total, 1) * size
    step = jnp.arange(k)
    # u + k − 1 may round up to k, where there is no unit.
    points = jnp.minimum(u + step, jnp.nextafter(size.astype(u.dtype), jnp.zeros((), u.dtype)))
    rows = (jnp.broadcast_to(a, (*u.shape[:-1], a.shape[-1])) for a in (ends, points, certain))
    found = jnp.vectorize(_units, excluded=(3,), signature="(n),(k),(n)->(k)")(*rows, k)
    # An arc as long as 1 but for rounding could have two points over it.
    indices = jnp.minimum(jax.lax.cummax(found - step, axis=found.ndim - 1) + step, n - k + step)
    return _marked(indices, n).astype(probs.dtype)


def _units(ends: Any, points: Any, certain: Any, k: int) -> Any:
    """Increasing indices of the units over the points and of those with π = 1, of one row."""
    size = k - certain.sum()
    drawn = jnp.searchsorted(ends, points, side="right")
    surely = jnp.argsort(~certain, stable=True)[:k]
    step = jnp.arange(k)
    return jnp.sort(jnp.where(step < size, drawn, surely[jnp.maximum(step - size, 0)]))


def _marked(indices: Any, n: int) -> Any:
    flat = indices.reshape(-1, indices.shape[-1])
    marked = jnp.zeros((flat.shape[0], n)).at[jnp.arange(flat.shape[0])[:, None], flat].set(1)
    return marked.reshape(*indices.shape[:-1], n)
