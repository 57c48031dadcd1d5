"""Variances of the estimated total without joint inclusion probabilities."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from khot.designs.survey._units import check_units, drawn_units, expanded
from khot.relaxations._arguments import check_choice

__all__ = ["approximate_variance"]

Method = Literal["deville1", "deville2", "deville3", "hajek"]


def approximate_variance(y: Tensor, indicators: Tensor, probs: Tensor, method: Method = "deville2") -> Tensor:
    r"""An estimate of the variance of :func:`horvitz_thompson_total` from π alone.

    .. math:: \sum_{i \in s} c_i \Big( \frac{y_i}{\pi_i} - B \Big)^2

    For designs of a fixed size near the largest entropy, with k units drawn: conditional Poisson, Sampford,
    Pareto, Brewer, Tillé's, and those in random order. It uses no pairs, so that it is there also for designs
    without ``joint_inclusion`` and for those that leave pairs out, as systematic sampling; then it is the
    variance that the same π would have at large entropy. Never negative, and 0 if y is proportional to π.
    With equal π all are the unbiased estimate of simple random sampling.

    =========  =====================================  ==============================================
    method     c                                      B
    =========  =====================================  ==============================================
    deville1   (1 − π)k/(k − 1)                       Σcz/Σc over the draw, z = y/π
    hajek      the same                               the same: another name of deville1
    deville2   (1 − π)/(1 − Σa²), a = (1 − π)/Σ(1−π)  the same; R: ``varest``
    deville3   as deville2                            Σz/k
    =========  =====================================  ==============================================

    Args:
        y: values, shape (…, n).
        indicators: the draw, zeros and ones, shape (…, n), with no unit of π < 1 or with two at least.
        probs: inclusion probabilities, shape (…, n).
        method: one of the table. Hájek's is what his approximation of joint inclusion probabilities gives,
            with sums over the population estimated from the draw; Deville's first is the same formula.

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
