"""The registry of estimators: the names that ``estimator=`` accepts everywhere.

A new estimator is one new file with a function under ``@register``, and one import in ``khot.estimators``.
Its name is the name of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from khot.designs.registry import name_of
from khot.estimators._arguments import parameter_of

__all__ = ["Estimator", "get", "names", "register"]

Function = Callable[..., Tensor]

_OF_EVERY_CALL = {"scores", "k", "generator", "dim", "mask", "largest"}
_OTHER_NAMES = {"reinforce": "score_function", "straight_through": "sampled_straight_through"}


@dataclass(frozen=True)
class _Entry:
    function: Function
    design: str | None  # None if the option ``design`` says
    needs_losses: bool
    fresh: Mapping[str, Callable[[], Any]]  # options that are made anew for each estimator

    @property
    def options(self) -> dict[str, Any]:
        """The names of the options, and their defaults."""
        parameters = inspect.signature(self.function).parameters
        return {name: p.default for name, p in parameters.items() if name not in _OF_EVERY_CALL}


_ENTRIES: dict[str, _Entry] = {}


def register(
    *,
    design: str | None = None,
    needs_losses: bool = False,
    fresh: Mapping[str, Callable[[], Any]] | None = None,
) -> Callable[[Function], Function]:
    """Register an estimator, a function ``(scores, k, *, generator, dim, mask, largest, **options)``.

    Args:
        design: the name of the design it samples from; by default taken from its option ``design``.
        needs_losses: whether the gradient comes from losses instead of through the sample.
        fresh: options that hold state; each estimator gets a new object from these factories.

    Returns:
        A decorator for the function, whose name must be new.

    Example:
        >>> from khot.estimators import simple
        >>> register(design="conditional_poisson")(simple)
        Traceback (most recent call last):
        ValueError: register: an estimator named 'simple' is already registered
    """

    def add(function: Function) -> Function:
        name = function.__name__
        if name in _ENTRIES:
            raise ValueError(f"register: an estimator named {name!r} is already registered")
        _ENTRIES[name] = _Entry(function, design, needs_losses, fresh or {})
        return function

    return add


@dataclass(frozen=True)
class Estimator:
    """An estimator with its options; call it like its function.

    Args:
        name: one of :func:`names`.
        options: options of the function.

    Example:
        >>> estimator = get("sampled_straight_through", design="random_systematic")
        >>> estimator(torch.zeros(3, 6), 2).sum(-1), estimator.design, estimator.parameter
        (tensor([2., 2., 2.]), 'random_systematic', 'scores')
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(
        self,
        scores: Tensor,
        k: float,
        *,
        generator: torch.Generator | None = None,
        dim: int = -1,
        mask: Tensor | None = None,
        largest: bool = True,
    ) -> Tensor:
        """A sample with a gradient."""
        function = _ENTRIES[self.name].function
        return function(scores, k, generator=generator, dim=dim, mask=mask, largest=largest, **self.options)

    @property
    def design(self) -> str:
        """The name of the design it samples from; for a relaxed sample, the design at temperature 0."""
        entry = _ENTRIES[self.name]
        return entry.design or name_of(self.options.get("design", entry.options["design"]))

    @property
    def parameter(self) -> str:
        """How the design reads the scores: as ``scores``, π = sigmoid_topk(scores, k), or as ``logits``."""
        return parameter_of(self.design)

    @property
    def needs_losses(self) -> bool:
        """Whether the gradient comes from losses instead of through the sample."""
        return _ENTRIES[self.name].needs_losses

    def __str__(self) -> str:
        """Show the name and the options that are numbers, names or flags."""
        named = {key: name_of(value) if key == "design" else value for key, value in self.options.items()}
        shown = [f"{key}={value}" for key, value in named.items() if isinstance(value, int | float | str)]
        return self.name + (f"({', '.join(shown)})" if shown else "")


def names() -> list[str]:
    """The names of all registered estimators.

    Returns:
        The names, in order of registration.

    Example:
        >>> "reinmax" in names()
        True
    """
    return list(_ENTRIES)


def get(estimator: str | Function | Estimator, caller: str = "estimators.get", **options: Any) -> Estimator:
    """An estimator with its options; a wrong name or option raises an error at once.

    Args:
        estimator: one of :func:`names`, its function, or an :class:`Estimator`, which already has options.
        caller: the function named in error messages.
        options: options of the function.

    Returns:
        A callable ``(scores, k, *, generator, dim, mask, largest)``.

    Example:
        >>> get("reinmax", design="tree_pivotal")(torch.zeros(4), 2).sum()
        tensor(2.)
    """
    if isinstance(estimator, Estimator):
        if options:
            option = next(iter(options))
            raise TypeError(f"{caller}: {option!r} belongs to the estimator, which was given as {estimator}")
        return estimator
    name = _name(estimator, caller)
    entry = _ENTRIES[name]
    for option in options:
        if option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise TypeError(f"{caller}: {name} has no option {option!r}; it has {known}")
    made = {key: make() for key, make in entry.fresh.items() if options.get(key) is None}
    chosen = {**options, **made}
    with torch.device("cpu"):  # whatever the default: a wrong option shows now
        entry.function(torch.zeros(2), 1, generator=torch.Generator(), **chosen)
    return Estimator(name, chosen)


def _name(estimator: str | Function, caller: str) -> str:
    if not isinstance(estimator, str):
        for name, entry in _ENTRIES.items():
            if entry.function is estimator:
                return name
        raise TypeError(f"{caller}: estimator must be a name or one of khot.estimators, got {estimator!r}")
    if estimator in _ENTRIES:
        return estimator
    instead = f"; use {_OTHER_NAMES[estimator]!r}" if estimator in _OTHER_NAMES else ""
    raise ValueError(
        f"{caller}: unknown estimator {estimator!r}{instead}; known estimators: {', '.join(_ENTRIES)}"
    )
