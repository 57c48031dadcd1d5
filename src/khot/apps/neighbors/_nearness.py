"""Distances from queries to references, a block of queries at a time, so that no n × n matrix is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Metric", "blocks", "nearness", "unit_vectors"]

Metric = Literal["sqeuclidean", "euclidean", "cosine"]
_ENTRIES = 1 << 22
"""Of a block: 16 MB in float32 for each tensor of its size."""


def blocks(queries: int, references: int, block_size: int | None) -> Iterator[slice]:
    """Slices of the queries: ``block_size`` rows each, or by default about four million entries."""
    size = block_size or max(1, _ENTRIES // max(references, 1))
    return (slice(start, min(start + size, queries)) for start in range(0, queries, size))


def unit_vectors(points: Tensor) -> Tensor:
    """Points (n, d) divided by their norms, even if a norm overflows the dtype."""
    largest = points.detach().abs().amax(-1, keepdim=True) if points.shape[-1] else points.new_ones(())
    return torch.nn.functional.normalize(points / largest.clamp_min(1), dim=-1)


def nearness(queries: Tensor, references: Tensor, metric: Metric) -> Tensor:
    """The negative distances (queries, references), with at least float32 precision.

    Squared distances are computed relative to the mean of the references; otherwise large vectors that lie
    close together would lose all digits. Coordinates whose squares would overflow are clamped: everything
    beyond is equally far.
    """
    if metric == "cosine":
        return unit_vectors(queries) @ unit_vectors(references).T - 1
    farthest = math.sqrt(torch.finfo(references.dtype).max / (8 * max(references.shape[-1], 1)))
    centre = references.detach().clamp(-farthest, farthest).mean(0) if len(references) else 0
    q, r = ((points - centre).clamp(-farthest, farthest) for points in (queries, references))
    squared = (q.square().sum(-1, keepdim=True) + r.square().sum(-1) - 2 * (q @ r.T)).clamp_min(0)
    if metric == "sqeuclidean":
        return -squared
    # The slope of the root is infinite at zero: equal points have distance 0 and no gradient.
    apart = squared > 0
    return -torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)
