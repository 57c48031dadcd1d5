"""Estimates from a sample with known inclusion probabilities, as in survey sampling.

Values, indicators and probabilities are tensors (…, n) over all n units of the population, and batches
broadcast: indicators (draws, n) give one estimate for each draw. Values of units that were not drawn are not
used, whatever they are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs._proportional import held_from

__all__ = [
    "design_effect",
    "hajek_mean",
    "horvitz_thompson_mean",
    "horvitz_thompson_total",
    "horvitz_thompson_variance",
    "inclusion_probabilities",
    "sen_yates_grundy_variance",
]


def inclusion_probabilities(sizes: Tensor, k: float) -> Tensor:
    r"""Inclusion probabilities proportional to size, none above 1.

    .. math:: \pi_i = \min(1, c \cdot \text{size}_i), \qquad \sum_i \pi_i = k

    Differentiable in the sizes, but for the sizes at which a unit reaches 1. R: ``inclusionprobabilities``.

    Args:
        sizes: not negative, shape (…, n); 0 is never drawn. At least ``k`` of each row must be positive.
        k: the sum, 0 ≤ k ≤ n; for designs of a fixed size an integer.

    Returns:
        π of the shape and dtype of ``sizes``.

    Example:
        >>> inclusion_probabilities(torch.tensor([1.0, 2.0, 3.0, 14.0]), 2)
        tensor([0.1667, 0.3333, 0.5000, 1.0000])

    Reference: Tillé (2006), Sampling Algorithms.
    """
    name = "inclusion_probabilities"
    _check_floating(name, "sizes", sizes)
    n = sizes.shape[-1]
    if not 0 <= k <= n:
        raise ValueError(f"{name}: k must satisfy 0 <= k <= n = {n}, got k = {k}")
    if not bool((sizes.isfinite() & (sizes >= 0)).all()):
        low, high = sizes.detach().aminmax()
        raise ValueError(f"{name}: sizes must be finite and not negative, got values in [{low:g}, {high:g}]")
    positive = int((sizes > 0).sum(-1).min()) if sizes.numel() else n
    if positive < k:
        raise ValueError(f"{name}: at least k = {k} sizes of each row must be positive, got {positive}")
    # Relative to the largest, so that no sum overflows.
    exact = sizes.double() / sizes.detach().double().amax(-1, keepdim=True).clamp_min(
        torch.finfo(torch.float64).tiny
    )
    increasing, order = exact.sort(-1)
    bound, sums = held_from(increasing)
    held = bound <= k
    count = held.sum(-1, keepdim=True)
    rest = sums.gather(-1, (n - 1 - count).clamp_min(0))
    # The count as float64: a number less whole numbers is in torch's default dtype, float32.
    share = (k - count.double()) / torch.where(rest > 0, rest, 1.0)
    pi = torch.where(held, 1.0, (increasing * share).clamp(0, 1))
    return pi.gather(-1, order.argsort(-1)).to(sizes.dtype)


def horvitz_thompson_total(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of a total: each drawn unit counts 1/π times.

    .. math:: \hat Y = \sum_i x_i \frac{y_i}{\pi_i}

    Unbiased for any design with these π, if π > 0 wherever y ≠ 0. R: ``HTestimator``.

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n).
        probs: inclusion probabilities, shape (…, n).

    Returns:
        Estimates, shape (…).

    Example:
        >>> y, pi = torch.tensor([10.0, 20.0, 30.0]), torch.tensor([0.5, 0.5, 1.0])
        >>> horvitz_thompson_total(y, torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), pi)
        tensor([50., 70.])

    Reference: Horvitz & Thompson (1952), A Generalization of Sampling Without Replacement.
    """
    _check_units("horvitz_thompson_total", y=y, indicators=indicators, probs=probs)
    drawn = _drawn("horvitz_thompson_total", indicators, probs)
    return _expanded(y, drawn, probs).sum(-1)


def horvitz_thompson_mean(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of a mean, for a known number n of units.

    .. math:: \hat Y / n

    Unbiased; :func:`hajek_mean` often varies less.

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n).
        probs: inclusion probabilities, shape (…, n).

    Returns:
        Estimates, shape (…).

    Example:
        >>> y, pi = torch.tensor([10.0, 20.0, 30.0]), torch.tensor([0.5, 0.5, 1.0])
        >>> horvitz_thompson_mean(y, torch.tensor([1.0, 0.0, 1.0]), pi)
        tensor(16.6667)

    Reference: Horvitz & Thompson (1952).
    """
    _check_units("horvitz_thompson_mean", y=y, indicators=indicators, probs=probs)
    drawn = _drawn("horvitz_thompson_mean", indicators, probs)
    return _expanded(y, drawn, probs).sum(-1) / y.shape[-1]


def hajek_mean(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Hájek estimate of a mean: the weights 1/π are made to sum to 1.

    .. math:: \frac{\sum_i x_i y_i / \pi_i}{\sum_i x_i / \pi_i}

    Exact for a constant y, with a bias of order 1/k. R: ``Hajekestimator``.

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n), with at least one unit.
        probs: inclusion probabilities, shape (…, n).

    Returns:
        Estimates, shape (…).

    Example:
        >>> y, pi = torch.tensor([10.0, 20.0, 30.0]), torch.tensor([0.5, 0.5, 1.0])
        >>> hajek_mean(y, torch.tensor([1.0, 0.0, 1.0]), pi)
        tensor(16.6667)

    Reference: Hájek (1971), in Godambe & Sprott, Foundations of Statistical Inference.
    """
    _check_units("hajek_mean", y=y, indicators=indicators, probs=probs)
    drawn = _drawn("hajek_mean", indicators, probs)
    if not bool(drawn.any(-1).all()):
        raise ValueError("hajek_mean: indicators must have at least one unit in each row, got none")
    weights = _expanded(torch.ones_like(y), drawn, probs).sum(-1)
    return _expanded(y, drawn, probs).sum(-1) / weights


def horvitz_thompson_variance(y: Tensor, indicators: Tensor, joint: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of the variance of :func:`horvitz_thompson_total`.

    .. math:: \sum_{i,j} x_i x_j \frac{\pi_{ij} - \pi_i \pi_j}{\pi_{ij}} \frac{y_i}{\pi_i} \frac{y_j}{\pi_j}

    Unbiased if all π_ij > 0; it may be negative.
    R: ``varHT(method=1)``.

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

    Unbiased for designs of a fixed size if all π_ij > 0, not negative where no covariance is positive, and 0
    if y is proportional to π. R: ``varHT(method=2)``.

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

    with the values of the whole population, so these are variances and not estimates. Below 1 the design is
    better than simple random sampling for this y. 1 where both variances are 0.

    Args:
        y: values of all units, shape (…, n), 0 wherever π is 0.
        joint: joint inclusion probabilities, shape (…, n, n), with π on the diagonal; k is the sum of π.

    Returns:
        Ratios, shape (…).

    Example:
        >>> from khot.designs import ConditionalPoisson
        >>> y = torch.tensor([1.0, 2.0, 3.0, 6.0])
        >>> design = ConditionalPoisson(2, probs=inclusion_probabilities(y + 1, 2))
        >>> design_effect(y, design.joint_inclusion) < 0.2
        tensor(True)

    Reference: Kish (1965), Survey Sampling.
    """
    name = "design_effect"
    _check_units(name, y=y, joint=joint)
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


def _check_floating(name: str, argument: str, value: Tensor) -> None:
    if not value.is_floating_point():
        raise TypeError(f"{name}: {argument} must have a floating-point dtype, got {value.dtype}")
    if value.dim() == 0 or value.shape[-1] == 0:
        raise ValueError(f"{name}: {argument} must have at least one unit, got shape {tuple(value.shape)}")


def _check_units(name: str, **given: Tensor) -> None:
    """Floating-point values over the same units."""
    n = given["y"].shape[-1:]
    for argument, value in given.items():
        if argument != "indicators":
            _check_floating(name, argument, value)
        if value.shape[-1:] != n or (argument == "joint" and value.shape[-2:] != n + n):
            shapes = ", ".join(f"{key} {tuple(each.shape)}" for key, each in given.items())
            raise ValueError(f"{name}: all must be over the same n units, got {shapes}")


def _drawn(name: str, indicators: Tensor, probs: Tensor) -> Tensor:
    """Indicators as booleans; a drawn unit has π > 0."""
    drawn = indicators != 0
    if bool((drawn & ~(probs > 0)).any()):
        raise ValueError(f"{name}: drawn units must have π > 0, got one with π = 0")
    return drawn


def _expanded(y: Tensor, drawn: Tensor, probs: Tensor) -> Tensor:
    """y/π where drawn, 0 elsewhere: what was not drawn has no say, not even in gradients."""
    return torch.where(drawn, torch.where(drawn, y, 0.0) / torch.where(drawn, probs, 1.0), 0.0)


def _pairs(name: str, y: Tensor, indicators: Tensor, joint: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y/π where drawn, π, and which pairs were drawn."""
    _check_units(name, y=y, indicators=indicators, joint=joint)
    pi = joint.diagonal(dim1=-2, dim2=-1)
    drawn = _drawn(name, indicators, pi)
    both = drawn.unsqueeze(-1) & drawn.unsqueeze(-2)
    if bool((both & ~(joint > 0)).any()):
        raise ValueError(f"{name}: pairs that were drawn must have π_ij > 0, got one with π_ij = 0")
    return _expanded(y, drawn, pi), pi, both
