"""The arguments that the functions for JAX share, with the wording of ``khot.relaxations``."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from khot.relaxations._plain_arguments import check_switch

__all__ = ["allowed", "budget", "check_k", "check_positive", "compute_dtype", "per_row", "position"]

Array = Any  # jax.Array or a tracer


def position(name: str, scores: Array, axis: int) -> int:
    """The non-negative axis of floating scores."""
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        raise TypeError(f"{name}: scores must have a floating-point dtype, got {scores.dtype}")
    if scores.ndim == 0:
        raise ValueError(f"{name}: scores must have at least one dimension, got a scalar")
    if not -scores.ndim <= axis < scores.ndim:
        raise IndexError(f"{name}: axis must be in [{-scores.ndim}, {scores.ndim - 1}], got {axis}")
    return axis % scores.ndim


def compute_dtype(scores: Array) -> Any:
    """The dtype to compute in: float32 for half types."""
    return jnp.float64 if scores.dtype == jnp.float64 else jnp.float32


def check_k(name: str, k: Any, n: int, *, integer: bool = False) -> None:
    """Check 0 ≤ k ≤ n, unless k is traced: then it has no values yet."""
    values = _readable(name, "k", k)
    if values is None:
        return
    if not ((values >= 0) & (values <= n)).all():
        raise ValueError(f"{name}: k must satisfy 0 <= k <= n = {n}, got k = {k}")
    if integer and (values != np.round(values)).any():
        raise ValueError(f"{name}: k must be an integer here, got k = {k}")


def check_positive(name: str, temperature: Any) -> None:
    """Check that a temperature is positive and finite, unless it is traced."""
    values = _readable(name, "temperature", temperature)
    if values is not None and not ((values > 0) & (values < math.inf)).all():
        raise ValueError(f"{name}: temperature must be positive and finite, got {temperature}")


def _readable(name: str, argument: str, value: Any) -> Any:
    """A number or an array of numbers as a NumPy array; None if it is traced."""
    if isinstance(value, jax.core.Tracer):
        return None
    values = np.asarray(value)
    if not (jnp.issubdtype(values.dtype, jnp.floating) or np.issubdtype(values.dtype, np.integer)):
        raise TypeError(f"{name}: {argument} must be a number or an array of numbers, got {value!r}")
    return values.astype(np.float64)


def per_row(name: str, argument: str, value: Any, scores: Array, axis: int) -> Array:
    """A number or array with shape (…, 1), for the rows of scores whose ``axis`` comes last."""
    batch = scores.shape[:axis] + scores.shape[axis + 1 :]
    value = jnp.asarray(value, compute_dtype(scores))
    try:
        return jnp.broadcast_to(value, batch)[..., None]
    except ValueError as error:
        raise ValueError(
            f"{name}: {argument} must broadcast to the shape of scores without axis {axis}, {batch}, "
            f"got shape {value.shape}"
        ) from error


def budget(name: str, k: Any, scores: Array, axis: int, *, integer: bool = False) -> Array:
    """k with shape (…, 1); rounded if it must be an integer."""
    check_k(name, k, scores.shape[axis], integer=integer)
    rows = per_row(name, "k", k, scores, axis)
    return jnp.round(rows) if integer else rows


def allowed(name: str, scores: Array, mask: Array | None, largest: bool, axis: int) -> Array:
    """Rows whose largest are wanted, −inf where the mask excludes, in the dtype of computation."""
    check_switch(name, "largest", largest)
    x = scores if largest else -scores
    if mask is not None:
        mask = jnp.asarray(mask)
        if mask.dtype != jnp.bool_:
            raise TypeError(f"{name}: mask must be boolean (True = may be selected), got {mask.dtype}")
        try:
            mask = jnp.broadcast_to(mask, scores.shape)
        except ValueError as error:
            raise ValueError(
                f"{name}: mask must broadcast to scores.shape = {scores.shape}, got shape {mask.shape}"
            ) from error
        x = jnp.where(mask, x, -jnp.inf)
    return jnp.moveaxis(x, axis, -1).astype(compute_dtype(scores))


def straight_through(y: Array, hard: Array) -> Array:
    """The value of ``hard`` with the gradient of y."""
    return hard + (y - jax.lax.stop_gradient(y))
