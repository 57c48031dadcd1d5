"""Slow, obviously right answers to compare operators with; for tests only.

Each function solves one finite row in extended precision by bisection on the defining equation.
No operator shares code with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

__all__ = ["TRUTHS", "laplace", "normal", "sigmoid", "sinkhorn", "sparse"]

Vector = npt.NDArray[np.floating[Any]]
Gate = Callable[[Vector], tuple[npt.NDArray[np.bool_], Vector]]


def sigmoid(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of sigmoid top-k for one row of finite scores, 0 < k < n, as float64."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, _logistic_tail))


def sinkhorn(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of Sinkhorn top-k (plain), likewise: the log odds of the two anchors differ by 2x/ε."""
    return sigmoid(x, k, temperature / 2)


def laplace(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of Laplace top-k, likewise."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, lambda b: np.exp(-b) / 2))


def normal(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of normal top-k, likewise; the tails are those of `math.erfc`, in float64."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, _normal_tail))


def sparse(x: Vector, k: float, temperature: float = 1.0, norm: float = 2.0) -> Vector:
    """Weights of sparse top-k, likewise."""

    def gate(a: Vector) -> tuple[npt.NDArray[np.bool_], Vector]:
        y = cast("Vector", np.minimum(np.maximum(a, 0), 1) ** (1 / (np.longdouble(norm) - 1)))
        return y > 0.5, np.where(y > 0.5, y - 1, y)

    return _solved(x, k, temperature, gate)


def _solved(x: Vector, k: float, temperature: float, gate: Gate) -> Vector:
    scores = np.asarray(x, dtype=np.longdouble)
    anchor = np.sort(scores)[::-1][int(np.ceil(k)) - 1]
    z = (scores - anchor) / np.longdouble(temperature)
    z = np.minimum(np.maximum(z, -2e4), 2e4)  # beyond, a weight is 0 or 1
    margin = 2 * np.log(len(z)) + 50
    rough = _root(z.astype(np.float64), k, -margin, float(z.max() - z.min()) + margin, 80, gate)
    shift = _root(z, k, rough - 1e-3, rough + 1e-3, 60, gate)
    above, distance = gate(z + shift)
    return (above + distance).astype(np.float64)


def _root(
    z: Vector,
    k: float,
    low: float,
    high: float,
    halvings: int,
    gate: Gate,
) -> Any:
    """The shift between low and high at which the weights sum to k, in the precision of z.

    The sum is taken as (how many exceed ½) − k plus the signed distances to 0 and 1: nothing cancels.
    """
    bottom, top = np.full((), low, z.dtype), np.full((), high, z.dtype)
    for _ in range(halvings):
        middle = (bottom + top) / 2
        above, distance = gate(z + middle)
        if (above.sum() - k) + distance.sum() > 0:
            top = middle
        else:
            bottom = middle
    return (bottom + top) / 2


def _by_tail(a: Vector, tail: Callable[[Vector], Vector]) -> tuple[npt.NDArray[np.bool_], Vector]:
    """Which weights exceed ½, and their signed distances to the nearer of 0 and 1, for a symmetric gate."""
    above = a > 0
    distance = tail(np.minimum(np.abs(a), 11000))
    return above, np.where(above, -distance, distance)


def _logistic_tail(b: Vector) -> Vector:
    e = np.exp(-b)
    return e / (1 + e)


def _normal_tail(b: Vector) -> Vector:
    return np.array([math.erfc(float(v) / math.sqrt(2)) / 2 for v in b])


#: The truth of an operator by its registered name; all take (row, k, temperature).
TRUTHS: dict[str, Callable[[Vector, float, float], Vector]] = {
    "sigmoid": sigmoid,
    "laplace": laplace,
    "normal": normal,
    "sparse": sparse,
    "sinkhorn": sinkhorn,
}
