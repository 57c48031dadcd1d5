"""Combine an ensemble of sparse models into one with exactly k terms: the most frequent terms.

The median over models with k terms each has fewer than k: a term that is in less than half of the models
becomes zero. Here the k terms with the largest inclusion frequencies stay, each with the median (or mean) of
its coefficients in the models that include it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from khot.apps.sindy._budget import terms_of_each
from khot.relaxations._plain_arguments import check_switch

__all__ = ["MostFrequentTerms", "inclusion_frequencies"]

Array = NDArray[np.float64]


def inclusion_frequencies(coefficients: Sequence[Any]) -> Array:
    """The share of models in which each term is not zero.

    Args:
        coefficients: the coefficients (equations, terms) of each model: the ``coef_list`` of pysindy's
            ``EnsembleOptimizer``.

    Returns:
        Shares in [0, 1], an array (equations, terms).

    Example:
        >>> inclusion_frequencies([[[1.0, 0.0]], [[2.0, 3.0]]])
        array([[1. , 0.5]])
    """
    return (_stacked("inclusion_frequencies", coefficients) != 0).mean(axis=0)


class MostFrequentTerms:
    """An aggregator for pysindy's ``EnsembleOptimizer`` that keeps exactly k terms.

    Args:
        k: how many terms: a number, or a sequence with one number for each equation.
        per_target: whether a single number ``k`` counts for each equation, or for all equations together.
        value: take the ``"median"`` or the ``"mean"`` of a term's coefficients in the models that have it.

    Among equally frequent terms, the one with the larger coefficient stays, relative to the largest of its
    equation.

    Example:
        >>> models = [np.array([[1.0, 0.0, 3.0]]), np.array([[1.2, 2.0, 0.0]]), np.array([[0.0, 2.2, 3.0]])]
        >>> MostFrequentTerms(2)([*models, models[0]])
        array([[1., 0., 3.]])
    """

    def __init__(
        self, k: int | Sequence[int], *, per_target: bool = True, value: Literal["median", "mean"] = "median"
    ) -> None:
        if value not in ("median", "mean"):
            raise ValueError(f"MostFrequentTerms: value must be 'median' or 'mean', got {value!r}")
        check_switch("MostFrequentTerms", "per_target", per_target)
        self.k, self.per_target, self.value = k, per_target, value

    def __call__(self, coefficients: Sequence[Any]) -> Array:
        """The coefficients (equations, terms) of one model."""
        models = _stacked("MostFrequentTerms", coefficients)
        included = models != 0
        averaged = np.zeros(models.shape[1:])
        for place in zip(*np.nonzero(included.any(axis=0)), strict=True):
            values = models[(slice(None), *place)][included[(slice(None), *place)]]
            averaged[place] = np.median(values) if self.value == "median" else values.mean()
        size = np.abs(averaged)
        largest = size.max(axis=1, keepdims=True)
        rank = included.sum(axis=0) + 0.5 * size / np.where(largest > 0, largest, 1.0)
        each = terms_of_each("MostFrequentTerms", self.k, self.per_target, len(averaged), models.shape[2])
        kept = np.zeros(averaged.shape, dtype=bool)
        for rows, count in [(slice(None), each)] if isinstance(each, int) else enumerate(each):
            chosen = np.argsort(-rank[rows], axis=None, kind="stable")[:count]
            kept[rows].reshape(-1)[chosen] = True
        return np.where(kept, averaged, 0.0)

    def __repr__(self) -> str:
        return f"MostFrequentTerms({self.k!r}, per_target={self.per_target}, value={self.value!r})"


def _stacked(name: str, coefficients: Sequence[Any]) -> Array:
    if not len(coefficients):
        raise ValueError(f"{name}: coefficients must be those of one model or more, got none")
    models = np.stack([np.asarray(model, dtype=np.float64) for model in coefficients])
    if models.ndim != 3:
        raise ValueError(f"{name}: each model must be (equations, terms), got the shape {models.shape[1:]}")
    return models
