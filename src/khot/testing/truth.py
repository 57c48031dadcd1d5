"""Slow, obviously right reference implementations; for tests and benchmarks only.

Rows of finite scores lie along the last axis; results are float64. Members of the threshold family are solved
in extended precision by bisection on the defining equation. The operators share no code with this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

__all__ = [
    "GRADIENTS",
    "TRUTHS",
    "hard",
    "laplace",
    "neuralsort",
    "normal",
    "order",
    "sigmoid",
    "sinkhorn",
    "softsort",
    "sparse",
]

Vector = npt.NDArray[np.floating[Any]]
Gate = Callable[[Vector], tuple[npt.NDArray[np.bool_], Vector]]


def sigmoid(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of sigmoid top-k for 0 < k ≤ n."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, _logistic_tail))


def sinkhorn(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of Sinkhorn top-k (plain): the log-odds of the two anchors differ by 2x/ε."""
    return sigmoid(x, k, temperature / 2)


def laplace(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of Laplace top-k for 0 < k ≤ n."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, lambda b: np.exp(-b) / 2))


def normal(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of normal top-k for 0 < k ≤ n; the tails come from `math.erfc`, in float64."""
    return _solved(x, k, temperature, lambda a: _by_tail(a, _normal_tail))


def sparse(x: Vector, k: float, temperature: float = 1.0, norm: float = 2.0) -> Vector:
    """Weights of sparse top-k for 0 < k ≤ n."""

    def gate(a: Vector) -> tuple[npt.NDArray[np.bool_], Vector]:
        y = cast("Vector", np.minimum(np.maximum(a, 0), 1) ** (1 / (np.longdouble(norm) - 1)))
        return y > 0.5, np.where(y > 0.5, y - 1, y)

    return _solved(x, k, temperature, gate)


def softsort(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of softsort for integer k: the sum of the first k rows of softmax(−|x − sorted x|/τ)."""
    scores = np.asarray(x, dtype=np.longdouble)
    best = np.sort(scores, axis=-1)[..., ::-1]
    rows = (
        _softmax(-np.abs(scores - best[..., r : r + 1]) / np.longdouble(temperature)) for r in range(int(k))
    )
    return sum(rows, np.zeros_like(scores)).astype(np.float64)


def neuralsort(x: Vector, k: float, temperature: float = 1.0) -> Vector:
    """Weights of neuralsort: the sum of rows softmax(((n + 1 − 2r)x − Σⱼ|x − xⱼ|)/τ) for r = 1 … k."""
    scores = np.asarray(x, dtype=np.longdouble)
    n = scores.shape[-1]
    distances = np.stack([np.abs(scores - scores[..., j : j + 1]).sum(-1) for j in range(n)], -1)
    rows = (
        _softmax(((n + 1 - 2 * r) * scores - distances) / np.longdouble(temperature))
        for r in range(1, int(k) + 1)
    )
    return sum(rows, np.zeros_like(scores)).astype(np.float64)


def hard(x: Vector, k: float) -> Vector:
    """The indicator of the k largest, ties by index."""
    first = np.argsort(-x, axis=-1, kind="stable")[..., : int(k)]
    y = np.zeros(x.shape)
    np.put_along_axis(y, first, 1.0, -1)
    return y


def order(x: Vector) -> Vector:
    """The indices that sort the rows, ties by index."""
    return np.argsort(x, axis=-1, kind="stable").astype(np.float64)


def _softmax(a: Vector) -> Vector:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _solved(x: Vector, k: float, temperature: float, gate: Gate) -> Vector:
    scores = np.asarray(x, dtype=np.longdouble)
    anchor = np.sort(scores, axis=-1)[..., ::-1][..., int(np.ceil(k)) - 1, None]
    z = (scores - anchor) / np.longdouble(temperature)
    z = np.minimum(np.maximum(z, -2e4), 2e4)  # beyond, a weight is 0 or 1
    margin = 2 * np.log(z.shape[-1]) + 50
    highest = (z.max(-1, keepdims=True) - z.min(-1, keepdims=True)).astype(np.float64) + margin
    # at most 5e4 apart, so that 40 halvings come far nearer than the 1e-3 between which the next 60 search
    rough = _root(z.astype(np.float64), k, np.full_like(highest, -margin), highest, 40, gate)
    shift = _root(z, k, rough - 1e-3, rough + 1e-3, 60, gate)
    above, distance = gate(z + shift)
    return (above + distance).astype(np.float64)


def _root(z: Vector, k: float, low: Vector, high: Vector, halvings: int, gate: Gate) -> Vector:
    """The shift between low and high at which the weights sum to k, in the precision of z.

    The sum is taken as (how many exceed ½) − k plus the signed distances to 0 and 1: nothing cancels.
    """
    bottom, top = low.astype(z.dtype), high.astype(z.dtype)
    for _ in range(halvings):
        middle = (bottom + top) / 2
        above, distance = gate(z + middle)
        too_much = (above.sum(-1, keepdims=True) - k) + distance.sum(-1, keepdims=True) > 0
        top = np.where(too_much, middle, top)
        bottom = np.where(too_much, bottom, middle)
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
    return np.asarray(_erfc(b.astype(np.float64) / math.sqrt(2)), dtype=np.float64) / 2


_erfc = np.frompyfunc(math.erfc, 1, 1)


def _gated_gradient(w: Vector, grad: Vector) -> Vector:
    """`(diag(w) − w wᵀ/Σw) grad`, the Jacobian product of a threshold y = F(x + c) with density w."""
    total = w.sum(-1, keepdims=True)
    mean = np.divide((w * grad).sum(-1, keepdims=True), total, out=np.zeros_like(total), where=total > 0)
    return w * (grad - mean)


#: The truth of an operator by its registered name, to 1e-13; all take (rows, k, temperature). Not neuralsort:
#: it multiplies the scores by n/τ and their rounding with them.
TRUTHS: dict[str, Callable[[Vector, float, float], Vector]] = {
    "sigmoid": sigmoid,
    "laplace": laplace,
    "normal": normal,
    "sparse": sparse,
    "sinkhorn": sinkhorn,
    "softsort": softsort,
}

#: The gradient in the scores at temperature 1 of maps without kinks, where the weights determine it; all take
#: the weights and the gradient of the result.
GRADIENTS: dict[str, Callable[[Vector, Vector], Vector]] = {
    "sigmoid": lambda y, grad: _gated_gradient(y * (1 - y), grad),
    "laplace": lambda y, grad: _gated_gradient(np.minimum(y, 1 - y), grad),
}
