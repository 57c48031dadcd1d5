"""Variances of the estimated total without joint inclusion probabilities."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from khot.designs.survey._units import check_units, drawn_units, expanded
from khot.relaxations._plain_arguments import check_choice

__all__ = ["approximate_variance"]

Method = Literal["deville1", "deville2", "deville3", "hajek"]


def approximate_variance(y: Tensor, indicators: Tensor, probs: Tensor, method: Method = "deville2") -> Tensor:
    r"""An estimate of the variance of :func:`horvitz_thompson_total` from π alone.

    .. math:: \sum_{i \in s} c_i \Big( \frac{y_i}{\pi_i} - B \Big)^2

    It is for designs of a fixed size k near maximum entropy: conditional Poisson, Sampford, Pareto, Brewer,
    Tillé, and the designs in random order. It needs no joint inclusion probabilities, so it also works for
    designs without ``joint_inclusion``, and for designs that never draw some pairs, such as systematic
    sampling; there it estimates the variance that the same π would have at maximum entropy. It is never
    negative, and 0 if y is proportional to π. With equal π all methods give the unbiased estimate of simple
    random sampling. Cost: O(n).

    =========  =====================================  ==============================================
    method     c                                      B
    =========  =====================================  ==============================================
    deville1   (1 − π)k/(k − 1)                       Σcz/Σc over the draw, z = y/π
    hajek      the same                               the same: another name for deville1
    deville2   (1 − π)/(1 − Σa²), a = (1 − π)/Σ(1−π)  the same; R: ``varest``
    deville3   as deville2                            Σz/k
    =========  =====================================  ==============================================

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n). The number of drawn units with π < 1 must not be
            exactly one.
        probs: inclusion probabilities, shape (…, n).
        method: one of the table. ``hajek`` follows from Hájek's approximation of joint inclusion
            probabilities, with sums over the population estimated from the draw; ``deville1`` is the same
            formula.

    Returns:
        Estimates, shape (…).

    Example:
        >>> y, x = torch.tensor([1.0, 2.0, 3.0, 6.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
        >>> round(approximate_variance(y, x, torch.full((4,), 0.5)).item(), 4)
        8.0

    Reference: Hájek (1964, 1981); Deville (1993); Matei & Tillé (2005), Evaluation of Variance Approximations
    and Estimators in Maximum Entropy Sampling with Unequal Probability and Fixed Sample Size.
    """
    name = "approximate_variance"
    check_units(name, y=y, indicators=indicators, probs=probs)
    check_choice(name, "method", method, get_args(Method))
    drawn = drawn_units(name, indicators, probs)
    spare = torch.where(drawn, 1 - probs, 0.0)
    random = (spare > 0).sum(-1)
    if bool((random == 1).any()):
        raise ValueError(f"{name}: at least two drawn units of a row must have π < 1, or none, got one")
    z, size = expanded(y, drawn, probs), drawn.sum(-1, keepdim=True)
    total = spare.sum(-1, keepdim=True)
    share = spare / torch.where(total > 0, total, 1.0)
    if method in ("deville1", "hajek"):
        weights = spare * size / (size - 1).clamp_min(1)
    else:
        weights = spare / (1 - share.square().sum(-1, keepdim=True))
    mean = z.sum(-1, keepdim=True) / size.clamp_min(1) if method == "deville3" else None
    centre = (share * z).sum(-1, keepdim=True) if mean is None else mean
    return (weights * (z - centre).square()).sum(-1)
