"""Variances of the estimated total, from joint inclusion probabilities."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from khot.designs.survey._units import check_units, drawn_units, expanded

__all__ = ["design_effect", "horvitz_thompson_variance", "sen_yates_grundy_variance"]


def horvitz_thompson_variance(y: Tensor, indicators: Tensor, joint: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of the variance of :func:`horvitz_thompson_total`.

    .. math:: \sum_{i,j} x_i x_j \frac{\pi_{ij} - \pi_i \pi_j}{\pi_{ij}} \frac{y_i}{\pi_i} \frac{y_j}{\pi_j}

    It is unbiased if all π_ij > 0, and may be negative. If some π_ij are 0 it warns; use
    :func:`approximate_variance` then. R: ``varHT(method=1)``. Cost: O(n²).

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n).
        joint: joint inclusion probabilities, shape (…, n, n), with π on the diagonal.

    Returns:
        Estimates, shape (…).

    Example:
        >>> from khot.designs import SimpleRandom
        >>> y, x = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
        >>> round(horvitz_thompson_variance(y, x, SimpleRandom(2, 4).joint_inclusion).item(), 4)
        8.0

    Reference: Horvitz & Thompson (1952).
    """
    z, pi, both = _pairs("horvitz_thompson_variance", y, indicators, joint)
    pairs = pi.unsqueeze(-1) * pi.unsqueeze(-2)
    ratio = torch.where(both, (joint - pairs) / torch.where(both, joint, 1.0), 0.0)
    return torch.einsum("...i,...ij,...j->...", z, ratio, z)


def sen_yates_grundy_variance(y: Tensor, indicators: Tensor, joint: Tensor) -> Tensor:
    r"""The Sen–Yates–Grundy estimate of the variance of :func:`horvitz_thompson_total`, for a fixed size.

    .. math:: \frac12 \sum_{i,j} x_i x_j \frac{\pi_i \pi_j - \pi_{ij}}{\pi_{ij}}
        \Big( \frac{y_i}{\pi_i} - \frac{y_j}{\pi_j} \Big)^2

    It is unbiased for designs of a fixed size if all π_ij > 0. If some π_ij are 0 it warns; use
    :func:`approximate_variance` then. It is not negative if no covariance is positive, and 0 if y is
    proportional to π. R: ``varHT(method=2)``. Cost: O(n²).

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n).
        joint: joint inclusion probabilities, shape (…, n, n), with π on the diagonal.

    Returns:
        Estimates, shape (…).

    Example:
        >>> from khot.designs import SimpleRandom
        >>> y, x = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
        >>> round(sen_yates_grundy_variance(y, x, SimpleRandom(2, 4).joint_inclusion).item(), 4)
        8.0

    Reference: Sen (1953); Yates & Grundy (1953).
    """
    z, pi, both = _pairs("sen_yates_grundy_variance", y, indicators, joint)
    pairs = pi.unsqueeze(-1) * pi.unsqueeze(-2)
    ratio = torch.where(both, (pairs - joint) / torch.where(both, joint, 1.0), 0.0)
    return (ratio * (z.unsqueeze(-1) - z.unsqueeze(-2)).square()).sum((-2, -1)) / 2


def design_effect(y: Tensor, joint: Tensor) -> Tensor:
    r"""The variance of the estimated total under a design, relative to simple random sampling of equal size.

    .. math:: \frac{\sum_{i,j} (\pi_{ij} - \pi_i\pi_j) \frac{y_i}{\pi_i} \frac{y_j}{\pi_j}}
        {n^2 (1 - k/n)\, S_y^2 / k}

    It uses the values of the whole population, so the variances are exact, not estimates. Below 1, the design
    is better than simple random sampling for this y. If both variances are 0, the ratio is 1. Cost: O(n²).

    Args:
        y: values of all units, shape (…, n), 0 wherever π is 0.
        joint: joint inclusion probabilities, shape (…, n, n), with π on the diagonal; k is the sum of π.

    Returns:
        Ratios, shape (…).

    Example:
        >>> from khot.designs import ConditionalPoisson
        >>> from khot.designs.survey import inclusion_probabilities
        >>> y = torch.tensor([1.0, 2.0, 3.0, 6.0])
        >>> design = ConditionalPoisson(2, probs=inclusion_probabilities(y + 1, 2))
        >>> design_effect(y, design.joint_inclusion) < 0.2
        tensor(True)

    Reference: Kish (1965), Survey Sampling.
    """
    name = "design_effect"
    check_units(name, y=y, joint=joint)
    n = y.shape[-1]
    pi = joint.diagonal(dim1=-2, dim2=-1)
    if bool(((pi <= 0) & (y != 0)).any()):
        raise ValueError(f"{name}: y must be 0 where π is 0, got another value")
    z = torch.where(pi > 0, y / torch.where(pi > 0, pi, 1.0), 0.0)
    covariance = joint - pi.unsqueeze(-1) * pi.unsqueeze(-2)
    variance = torch.einsum("...i,...ij,...j->...", z, covariance, z).clamp_min(0)
    k = pi.sum(-1)
    spread = (y - y.mean(-1, keepdim=True)).square().sum(-1) / max(1, n - 1)
    simple = torch.where(k > 0, n * (n - k).clamp_min(0) * spread / torch.where(k > 0, k, 1.0), 0.0)
    at_zero = torch.where(variance > 0, math.inf, 1.0)
    return torch.where(simple > 0, variance / torch.where(simple > 0, simple, 1.0), at_zero)


def _pairs(name: str, y: Tensor, indicators: Tensor, joint: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y/π where drawn, π, and which pairs were drawn."""
    check_units(name, y=y, indicators=indicators, joint=joint)
    pi = joint.diagonal(dim1=-2, dim2=-1)
    drawn = drawn_units(name, indicators, pi)
    both = drawn.unsqueeze(-1) & drawn.unsqueeze(-2)
    if bool((both & ~(joint > 0)).any()):
        raise ValueError(f"{name}: pairs that were drawn must have π_ij > 0, got one with π_ij = 0")
    _warn_of_impossible_pairs(name, pi, joint)
    return expanded(y, drawn, pi), pi, both


def _warn_of_impossible_pairs(name: str, pi: Tensor, joint: Tensor) -> None:
    """Pairs that are never drawn together have no say in an estimate, whatever they add to the variance."""
    least = torch.minimum(pi.unsqueeze(-1), pi.unsqueeze(-2)).detach()
    if bool(((least > 0) & (joint.detach() <= 8 * torch.finfo(joint.dtype).eps * least)).any()):
        warnings.warn(
            f"{name}: some pairs have π_ij = 0, so the estimate is biased, and may be far off or negative; "
            "use approximate_variance(y, indicators, probs), or a design that draws all pairs",
            stacklevel=4,
        )
