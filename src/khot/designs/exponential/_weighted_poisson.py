r"""Conditional Poisson sampling with each set weighted by a sum over its units: Sampford and Pareto sampling.

    p(s) = exp(Σ_{i∈s} tᵢ) Σ_{i∈s} aᵢ / exp B(t),   B(t) = log e_k(exp t) + log⟨a, m(t)⟩,

with m the inclusion probabilities of conditional Poisson sampling at t. For fixed a this is an exponential
family in t, so its mean is ∇B and its covariance ∇²B. Unlike the textbook formula, this never divides by a
difference of weights, which is 0 for ties.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.exponential._natural_parameters import (
    inclusion,
    joint_from_mean,
    log_partition,
    takes_scan,
    vjp,
    within_unit,
)

__all__ = ["weighted_inclusion", "weighted_joint_inclusion"]


def weighted_inclusion(t: Tensor, a: Tensor, k: int) -> Tensor:
    """∇B at clamped t, for a ≥ 0 with a positive sum over some set; k > 0."""
    return _mean(t, a, k, takes_scan(t, k))


def weighted_joint_inclusion(t: Tensor, a: Tensor, k: int) -> Tensor:
    """P(xᵢ = xⱼ = 1), shape (…, n, n)."""
    scan = takes_scan(t, k)
    return joint_from_mean(lambda s: _mean(s, a, k, scan), t, k)


def _mean(t: Tensor, a: Tensor, k: int, scan: bool) -> Tensor:
    def log_total(s: Tensor) -> Tensor:
        return log_partition(s, k, scan) + (a * inclusion(s, k, scan)).sum(-1).log()

    value, product = vjp(log_total, t)
    return within_unit(product(torch.ones_like(value))[0])
