"""Totals and means of a population, estimated from a draw."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.survey._units import check_units, drawn_units, expanded

__all__ = ["hajek_mean", "horvitz_thompson_mean", "horvitz_thompson_total"]


def horvitz_thompson_total(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of a total: each drawn unit has the weight 1/π.

    .. math:: \hat Y = \sum_i x_i \frac{y_i}{\pi_i}

    It is unbiased for any design with these π, if π > 0 wherever y ≠ 0. R: ``HTestimator``. Cost: O(n).

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
    check_units("horvitz_thompson_total", y=y, indicators=indicators, probs=probs)
    drawn = drawn_units("horvitz_thompson_total", indicators, probs)
    return expanded(y, drawn, probs).sum(-1)


def horvitz_thompson_mean(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Horvitz–Thompson estimate of a mean, for a known number n of units.

    .. math:: \hat Y / n

    It is unbiased; :func:`hajek_mean` often has a smaller variance. Cost: O(n).

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
    check_units("horvitz_thompson_mean", y=y, indicators=indicators, probs=probs)
    drawn = drawn_units("horvitz_thompson_mean", indicators, probs)
    return expanded(y, drawn, probs).sum(-1) / y.shape[-1]


def hajek_mean(y: Tensor, indicators: Tensor, probs: Tensor) -> Tensor:
    r"""The Hájek estimate of a mean: the weights 1/π are normalised to sum to 1.

    .. math:: \frac{\sum_i x_i y_i / \pi_i}{\sum_i x_i / \pi_i}

    It is exact if y is constant; in general it has a bias of order 1/k. R: ``Hajekestimator``. Cost: O(n).

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
    check_units("hajek_mean", y=y, indicators=indicators, probs=probs)
    drawn = drawn_units("hajek_mean", indicators, probs)
    if not bool(drawn.any(-1).all()):
        raise ValueError("hajek_mean: indicators must have at least one unit in each row, got none")
    weights = expanded(torch.ones_like(y), drawn, probs).sum(-1)
    return expanded(y, drawn, probs).sum(-1) / weights
