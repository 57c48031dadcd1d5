"""Slow, obviously right answers in float64 at temperature 1, which the gate compares results with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from khot.relaxations._special import ndtr, ndtri

__all__ = ["TRUTHS", "Truth"]

_HALVINGS = 100


@dataclass(frozen=True)
class Truth:
    """A map and its Jacobian product.

    Args:
        weights: of float64 scores and k.
        gradient: of the weights and the gradient of the result; the gradient of the scores. None where
            the map has kinks, at which a correct float32 gradient may be anything in between.
    """

    weights: Callable[[Tensor, int], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor] | None = None


def _solve(cdf: Callable[[Tensor], Tensor], x: Tensor, k: int, low: Tensor, high: Tensor) -> Tensor:
    """`y = F(x + c)` with `Σ y = k`: the interval of c is halved until it cannot shrink any more."""
    for _ in range(_HALVINGS):
        shift = (low + high) / 2
        too_much = cdf(x + shift).sum(-1, keepdim=True) > k
        high = torch.where(too_much, shift, high)
        low = torch.where(too_much, low, shift)
    return cdf(x + (low + high) / 2)


def _sigmoid_weights(x: Tensor, k: int) -> Tensor:
    n = x.shape[-1]
    if k == n:
        return torch.ones_like(x)
    middle = math.log(k / (n - k))
    return _solve(torch.sigmoid, x, k, middle - x.amax(-1, keepdim=True), middle - x.amin(-1, keepdim=True))


def _sigmoid_gradient(y: Tensor, grad: Tensor) -> Tensor:
    return _gated_gradient(y * (1 - y), grad)


def _gated_gradient(w: Tensor, grad: Tensor) -> Tensor:
    """`(diag(w) − w wᵀ/Σw) grad`."""
    total = w.sum(-1, keepdim=True)
    mean = torch.where(total > 0, (w * grad).sum(-1, keepdim=True) / total, 0.0)
    return w * (grad - mean)


def _laplace_weights(x: Tensor, k: int) -> Tensor:
    n = x.shape[-1]
    if k == n:
        return torch.ones_like(x)
    middle = math.log(2 * k / n) if 2 * k < n else -math.log(2 * (n - k) / n)
    return _solve(_laplace, x, k, middle - x.amax(-1, keepdim=True), middle - x.amin(-1, keepdim=True))


def _laplace(z: Tensor) -> Tensor:
    tail = torch.exp(-z.abs()) / 2
    return torch.where(z > 0, 1 - tail, tail)


def _laplace_gradient(y: Tensor, grad: Tensor) -> Tensor:
    return _gated_gradient(torch.minimum(y, 1 - y), grad)


def _normal_weights(x: Tensor, k: int) -> Tensor:
    n = x.shape[-1]
    if k == n:
        return torch.ones_like(x)
    middle = float(ndtri(torch.tensor(k / n, dtype=torch.float64)))
    return _solve(ndtr, x, k, middle - x.amax(-1, keepdim=True), middle - x.amin(-1, keepdim=True))


def _sparse_weights(x: Tensor, k: int) -> Tensor:
    return _solve(_clamp, x, k, -x.amax(-1, keepdim=True), 1 - x.amin(-1, keepdim=True))


def _clamp(z: Tensor) -> Tensor:
    return z.clamp(0, 1)


def _hard_weights(x: Tensor, k: int) -> Tensor:
    first = torch.sort(x, dim=-1, descending=True, stable=True)[1][..., :k]
    return torch.zeros_like(x).scatter(-1, first, 1.0)


def _softsort_weights(x: Tensor, k: int) -> Tensor:
    best = torch.sort(x, dim=-1, descending=True)[0]
    rows = (torch.softmax(-(x - best[..., r : r + 1]).abs(), -1) for r in range(k))
    return sum(rows, torch.zeros_like(x))


def _neuralsort_weights(x: Tensor, k: int) -> Tensor:
    n = x.shape[-1]
    distances = torch.stack([(x - x[..., j : j + 1]).abs().sum(-1) for j in range(n)], -1)
    rows = (torch.softmax((n + 1 - 2 * r) * x - distances, -1) for r in range(1, k + 1))
    return sum(rows, torch.zeros_like(x))


def _order(x: Tensor, k: int) -> Tensor:
    return torch.sort(x, dim=-1, stable=True)[1].double()


TRUTHS: dict[str, Truth] = {
    "sigmoid": Truth(_sigmoid_weights, _sigmoid_gradient),
    "laplace": Truth(_laplace_weights, _laplace_gradient),
    "normal": Truth(_normal_weights),
    "sparse": Truth(_sparse_weights),
    "softsort": Truth(_softsort_weights),
    "neuralsort": Truth(_neuralsort_weights),
    "hard": Truth(_hard_weights),
    "argsort": Truth(_order),
}
"""By the name of the relaxation; `sparse` is the Euclidean projection on the capped simplex. `hard` is the
indicator of the k largest, ties by index, and `argsort` the order of a stable sort."""
