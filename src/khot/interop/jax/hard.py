"""Hard top-k in JAX: the indicator of the k largest scores, ties by index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from khot.interop.jax._arguments import allowed, budget, position

__all__ = ["hard_topk"]


def hard_topk(scores: Any, k: Any, *, axis: int = -1, mask: Any = None, largest: bool = True) -> Any:
    """Mark the ``k`` largest ``scores`` along ``axis`` with 1, all others with 0: `khot.hard_topk`.

    Args:
        scores: a floating-point array of any shape. −inf is never selected; NaN counts as the largest.
        k: an integer, 0 ≤ k ≤ n, or an array that broadcasts to ``scores.shape`` without ``axis`` (rounded
            to integers).
        axis: the axis along which to select.
        mask: boolean, broadcastable to ``scores``; False is never selected.
        largest: False marks the smallest scores.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, with min(k, allowed) ones per row, without a
        gradient; ties go to the lower index.

    Example:
        >>> hard_topk(jnp.array([2.0, 3.0, 2.0, 1.0]), 2).tolist()
        [1.0, 1.0, 0.0, 0.0]
    """
    scores = jax.lax.stop_gradient(jnp.asarray(scores))
    last = position("hard_topk", scores, axis)
    places = jax.lax.stop_gradient(budget("hard_topk", k, scores, last, integer=True)).astype(jnp.int32)
    x = allowed("hard_topk", scores, mask, largest, last)
    if x.shape[-1] == 0:
        return scores
    best = jnp.flip(jnp.sort(x, -1), -1)
    threshold = jnp.take_along_axis(best, jnp.clip(places - 1, 0, x.shape[-1] - 1), -1)
    above = (x > threshold) | (jnp.isnan(x) & ~jnp.isnan(threshold))
    level = (x == threshold) | (jnp.isnan(x) & jnp.isnan(threshold))
    left = places - above.sum(-1, keepdims=True)
    chosen = above | (level & (jnp.cumsum(level, -1) <= left))
    chosen = chosen & (x != -jnp.inf) & (places > 0)
    return jnp.moveaxis(chosen.astype(scores.dtype), -1, last)
