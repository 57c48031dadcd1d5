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
    margin = 2 * np.log(np.longdouble(len(z))) + 50
    low, high = -margin, z.max() - z.min() + margin
    for _ in range(140):
        middle = (low + high) / 2
        if _sum_minus_k(z + middle, k) > 0:
            high = middle
        else:
            low = middle
    return _logistic(z + (low + high) / 2).astype(np.float64)


def _sum_minus_k(a: Vector, k: float) -> np.longdouble:
    """Σσ(a) − k, as (how many exceed ½) − k plus the signed distances to 0 and 1: nothing cancels."""
    tail = _logistic(-np.abs(a))
    above = a > 0
    return np.longdouble(above.sum() - k) + np.where(above, -tail, tail).sum()


def _logistic(a: Vector) -> Vector:
    e = np.exp(-np.abs(a))
    return np.where(a > 0, 1 / (1 + e), e / (1 + e))


#: The truth of an operator by its registered name; all take (row, k, temperature).
TRUTHS: dict[str, Callable[[Vector, float, float], Vector]] = {"sigmoid": sigmoid}
