"""The registry of designs: the names that ``design=`` accepts everywhere.

A new design is one new file with a class under ``@register``, and one import in ``khot.designs``. Its name is
the class name in words: ``random_systematic`` for ``RandomSystematic``. ``khot.sample``, the estimators, the
contract tests and the benchmarks read the registry.
"""

from __future__ import annotations

import re
from typing import TypeVar

from khot.designs.base import KHotDistribution

__all__ = ["get", "name_of", "names", "register"]

Design = TypeVar("Design", bound=type[KHotDistribution])

_DESIGNS: dict[str, type[KHotDistribution]] = {}


def register(design: Design) -> Design:
    """Register a design, so that it can be used by name; use it as a class decorator.

    The class must be constructible from k and one parameter (``probs``, ``scores`` or ``logits``), and its
    name must be new.

    Args:
        design: the class.

    Returns:
        The class.

    Example:
        >>> from khot.designs import Tille
        >>> register(Tille)
        Traceback (most recent call last):
        ValueError: register: a design named 'tille' is already registered
    """
    name = _in_words(design)
    if name in _DESIGNS:
        raise ValueError(f"register: a design named {name!r} is already registered")
    _DESIGNS[name] = design
    return design


def get(design: str | type[KHotDistribution], caller: str = "designs.get") -> type[KHotDistribution]:
    """The class of a design, given its name or the class itself.

    Args:
        design: one of :func:`names`, or a class.
        caller: the function named in error messages.

    Returns:
        The class.

    Example:
        >>> get("random_systematic").__name__, get("tille").exact_inclusion
        ('RandomSystematic', True)
    """
    if isinstance(design, type) and issubclass(design, KHotDistribution):  # pyright: ignore[reportUnnecessaryIsInstance]
        return design
    if not isinstance(design, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{caller}: design must be a name or a class of khot.designs, got {design!r}")
    if design not in _DESIGNS:
        raise ValueError(f"{caller}: unknown design {design!r}; known designs: {', '.join(_DESIGNS)}")
    return _DESIGNS[design]


def name_of(design: str | type[KHotDistribution], caller: str = "designs.name_of") -> str:
    """The name under which a design is registered.

    Args:
        design: a name or a class.
        caller: the function named in error messages.

    Returns:
        The name.

    Example:
        >>> from khot.designs import Tille
        >>> name_of(Tille)
        'tille'
    """
    kind = get(design, caller)
    name = _in_words(kind)
    if _DESIGNS.get(name) is not kind:
        raise ValueError(
            f"{caller}: design {kind.__name__} has no name; give it one by khot.designs.register"
        )
    return name


def names() -> list[str]:
    """The names of all registered designs.

    Returns:
        The names, in order of registration.

    Example:
        >>> "conditional_poisson" in names()
        True
    """
    return list(_DESIGNS)


def _in_words(design: type[KHotDistribution]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", design.__name__).lower()
