"""Measurements of one operator in one case: quality, gradient health, and the temperature to compare at."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from khot.calibration import calibrate_temperature
from khot.metrics import entropy, nccs, topk_overlap, weight_on_topk
from khot.relaxations import topk_matrix
from khot.relaxations.facade import has_rows
from khot.relaxations.registry import Relaxation

__all__ = [
    "Gradient",
    "Problem",
    "Quality",
    "chance",
    "gradient_health",
    "matched_temperature",
    "quality",
    "seeded",
]

WIDTH = 32
USABLE = 1e-3


@dataclass(frozen=True)
class Problem:
    """Scores (rows, n), a vector for every entry (rows, n, 32), and k."""

    scores: Tensor
    vectors: Tensor
    k: int

    @classmethod
    def make(cls, rows: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int) -> Problem:
        """Normal scores, and vectors from U[−1, 1] as in Pietruszka et al. (2021); the same at every call."""
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(rows, n, generator=generator, dtype=torch.float64)
        vectors = 2 * torch.rand(rows, n, WIDTH, generator=generator) - 1
        return cls(scores.to(device, dtype), vectors.to(device), k)

    def selected(self, scores: Tensor) -> Tensor:
        """The vectors of the k largest of these scores, (rows, k, 32)."""
        indices = scores.topk(self.k).indices.unsqueeze(-1)
        return self.vectors.gather(1, indices.expand(*indices.shape[:-1], WIDTH))


@dataclass(frozen=True)
class Quality:
    """How close a soft selection is to the exact one; means over rows.

    Args:
        recall: the share of the true top k among the k largest weights.
        on_topk: the share of the weight that lies on the true top k.
        entropy: 0 for hard weights, 1 for equal ones.
        nccs: the mean over the true vectors of the best cosine among the k blends; None without rows.
    """

    recall: float
    on_topk: float
    entropy: float
    nccs: float | None


@dataclass(frozen=True)
class Gradient:
    """How much of a gradient reaches the scores.

    Args:
        norm: the mean Euclidean norm of a row's gradient, for an incoming gradient of independent normal
            entries.
        usable: the share of entries whose gradient is finite and at least 1/1000 of the row's largest.
    """

    norm: float
    usable: float


def seeded(spec: Relaxation, seed: int) -> Relaxation:
    """The operator with its noise fixed, so that it can be calibrated and compared like the others."""
    if not spec.stochastic:
        return spec

    @functools.wraps(spec.weights)
    def weights(x: Tensor, *args: object, **options: object) -> Tensor:
        generator = torch.Generator(x.device).manual_seed(seed)
        return spec.weights(x, *args, generator=generator, **options)

    return dataclasses.replace(spec, weights=weights, stochastic=False)


def quality(spec: Relaxation, problem: Problem, temperature: float) -> Quality:
    """The quality of an operator; a random one must be `seeded`."""
    x, k = problem.scores, problem.k
    with torch.no_grad():
        y = spec.weights(x, k, temperature=temperature)
        found = None
        if has_rows(spec):
            # One row at a time: k × n weights are in memory, not k × n for the whole batch.
            blends = [
                topk_matrix(scores, k, spec, temperature=temperature).to(vectors.dtype) @ vectors
                for scores, vectors in zip(x, problem.vectors, strict=True)
            ]
            found = float(nccs(problem.selected(x), torch.stack(blends)).mean())
        return Quality(
            recall=float(topk_overlap(y.double(), x.double(), k).mean()),
            on_topk=float(weight_on_topk(y.double(), x.double(), k).mean()),
            entropy=float(entropy(y.double(), normalized=True).mean()),
            nccs=found,
        )


def chance(problem: Problem, seed: int) -> float:
    """The nCCS of k randomly chosen vectors."""
    blind = torch.rand(problem.scores.shape, generator=torch.Generator().manual_seed(seed + 1))
    chosen = problem.selected(blind.to(problem.scores.device))
    return float(nccs(problem.selected(problem.scores), chosen).mean())


def gradient_health(weights: Callable[[Tensor], Tensor], x: Tensor, seed: int) -> Gradient:
    """How much of an incoming gradient with independent normal entries reaches the scores."""
    incoming = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed + 2)).to(x.device, x.dtype)
    leaf = x.detach().clone().requires_grad_()
    y = weights(leaf)
    if not y.requires_grad:
        return Gradient(0.0, 0.0)
    (gradient,) = torch.autograd.grad(y, leaf, incoming)
    size = gradient.double().abs()
    finite = torch.isfinite(size)
    size = torch.where(finite, size, torch.zeros_like(size))
    largest = size.amax(-1, keepdim=True)
    usable = finite & (size >= USABLE * largest) & (largest > 0)
    return Gradient(float(size.square().sum(-1).sqrt().mean()), float(usable.double().mean()))


def matched_temperature(spec: Relaxation, problem: Problem, target: float) -> float | None:
    """The temperature at which the mean entropy of the weights equals the target; None if there is none."""
    try:
        return calibrate_temperature(problem.scores, problem.k, entropy=target, method=spec)
    except ValueError:
        return None
