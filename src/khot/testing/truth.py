"""Slow, obviously right answers to compare operators with; for tests only.

Each function solves one finite row in extended precision by bisection on the defining equation.
No operator shares code with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TRUTHS", "sigmoid"]

Vector = npt.NDArray[np.floating[Any]]


def sigmoid(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of sigmoid top-k for one row of finite scores, 0 < k < n, as float64."""
    scores = np.asarray(x, dtype=np.longdouble)
    anchor = np.sort(scores)[::-1][int(np.ceil(k)) - 1]
    z = (scores - anchor) / np.longdouble(temperature)
    z = np.minimum(np.maximum(z, -2e4), 2e4)  # beyond, a weight is 0 or 1
    margin = 2 * np.log(len(z)) + 50
    rough = _root(z.astype(np.float64), k, -margin, float(z.max() - z.min()) + margin, 80)
    shift = _root(z, k, rough - 1e-3, rough + 1e-3, 60)
    return _logistic(z + shift).astype(np.float64)


def _root(z: Vector, k: float, low: float, high: float, halvings: int) -> Any:
    """The shift between low and high at which the weights sum to k, in the precision of z."""
    bottom, top = np.full((), low, z.dtype), np.full((), high, z.dtype)
    for _ in range(halvings):
        middle = (bottom + top) / 2
        if _sum_minus_k(z + middle, k) > 0:
            top = middle
        else:
            bottom = middle
    return (bottom + top) / 2


def _sum_minus_k(a: Vector, k: float) -> Any:
    """Σσ(a) − k, as (how many exceed ½) − k plus the signed distances to 0 and 1: nothing cancels."""
    tail = _logistic(-np.abs(a))
    above = a > 0
    return (above.sum() - k) + np.where(above, -tail, tail).sum()


def _logistic(a: Vector) -> Vector:
    e = np.exp(-np.abs(a))
    return np.where(a > 0, 1 / (1 + e), e / (1 + e))


#: The truth of an operator by its registered name; all take (row, k, temperature).
TRUTHS: dict[str, Callable[[Vector, float, float], Vector]] = {"sigmoid": sigmoid}
