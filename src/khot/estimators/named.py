"""Estimators by name: what ``estimator=`` takes wherever one is to be chosen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from khot.estimators.gumbel_straight_through import gumbel_straight_through
from khot.estimators.imle import AdaptiveStep, adaptive_imle, imle
from khot.estimators.laws import PLACKETT_LUCE
from khot.estimators.reinmax import reinmax
from khot.estimators.relaxed_subset import relaxed_subset
from khot.estimators.sampled_straight_through import sampled_straight_through
from khot.estimators.score_function import score_function
from khot.estimators.simple import simple

__all__ = ["Estimator", "get", "names"]

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "straight_through": sampled_straight_through,
    "reinmax": reinmax,
    "simple": simple,
    "score_function": score_function,
    "imle": imle,
    "adaptive_imle": adaptive_imle,
    "relaxed_subset": relaxed_subset,
    "gumbel_straight_through": gumbel_straight_through,
}
_OF_EVERY_CALL = {"scores", "k", "generator", "dim", "mask", "largest"}


@dataclass(frozen=True)
class Estimator:
    """An estimator with its options; call it as its function.

    Args:
        name: one of :func:`names`.
        options: of the function.

    Example:
        >>> estimator = get("straight_through", design="random_systematic")
        >>> estimator(torch.zeros(3, 6), 2).sum(-1), estimator.law
        (tensor([2., 2., 2.]), 'random_systematic')
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(
        self,
        scores: Tensor,
        k: int,
        *,
        generator: torch.Generator | None = None,
        dim: int = -1,
        mask: Tensor | None = None,
        largest: bool = True,
    ) -> Tensor:
        """A sample with a gradient."""
        function = _FUNCTIONS[self.name]
        return function(scores, k, generator=generator, dim=dim, mask=mask, largest=largest, **self.options)

    @property
    def law(self) -> str:
        """The law of the sample: a design, or ``plackett_luce``; a relaxed sample's at temperature 0."""
        if self.name == "simple":
            return "conditional_poisson"
        parameters = inspect.signature(_FUNCTIONS[self.name]).parameters
        if "design" not in parameters:
            return PLACKETT_LUCE
        return self.options.get("design", parameters["design"].default)

    @property
    def needs_losses(self) -> bool:
        """Whether the gradient comes from losses and not through the sample."""
        return self.name == "score_function"

    def __str__(self) -> str:
        """Show the name and the options that are numbers, names or flags."""
        shown = [
            f"{key}={value}" for key, value in self.options.items() if isinstance(value, int | float | str)
        ]
        return self.name + (f"({', '.join(shown)})" if shown else "")


def names() -> list[str]:
    """The estimators there are.

    Example:
        >>> "reinmax" in names()
        True
    """
    return list(_FUNCTIONS)


def get(name: str, **options: Any) -> Estimator:
    """The estimator of that name, with options; a wrong name or option is an error now.

    Args:
        name: one of :func:`names`.
        options: of the function of that name.

    Returns:
        A callable ``(scores, k, *, generator, dim, mask, largest)``.

    Example:
        >>> get("reinmax", design="tree_pivotal")(torch.zeros(4), 2).sum()
        tensor(2.)
    """
    if name not in _FUNCTIONS:
        raise ValueError(
            f"estimators.get: unknown estimator {name!r}; known estimators: {', '.join(_FUNCTIONS)}"
        )
    function = _FUNCTIONS[name]
    known = [p for p in inspect.signature(function).parameters if p not in _OF_EVERY_CALL]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(
            f"estimators.get: {name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}"
        )
    if name == "adaptive_imle" and options.get("step") is None:
        options = {**options, "step": AdaptiveStep()}  # one that lasts from call to call
    function(torch.zeros(2), 1, generator=torch.Generator(), **options)
    return Estimator(name, options)
