"""Checks of arguments that need no scores: switches, choices, integers, generators.

An error names the function, the argument, the rule and the value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["check_choice", "check_generator", "check_integer", "check_switch", "check_tensor", "is_integer"]


def check_switch(name: str, argument: str, value: bool) -> None:
    """Check that ``value`` is True or False: a text such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be True or False, got {value!r}")


def check_choice(name: str, argument: str, value: object, choices: Iterable[str]) -> None:
    """Check that ``value`` is one of the ``choices``."""
    known = list(choices)
    if value not in known:
        words = ", ".join(repr(word) for word in known[:-1])
        raise ValueError(f"{name}: {argument} must be {words} or {known[-1]!r}, got {value!r}")


def check_integer(name: str, argument: str, value: Any, least: int = 1) -> None:
    """Check that ``value`` is an integer and not too small; True is none."""
    if not is_integer(value):
        raise TypeError(f"{name}: {argument} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: {argument} must be at least {least}, got {value}")


def is_integer(value: Any) -> bool:
    """Whether ``value`` is an integer of Python or NumPy; True is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_generator(name: str, generator: torch.Generator | None) -> None:
    """Check that ``generator`` is a generator, or None for torch's global one."""
    if generator is not None and not isinstance(generator, torch.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: generator must be a torch.Generator or None, got {generator!r}")


def check_tensor(name: str, argument: str, value: Tensor) -> None:
    """Check that ``value`` is a tensor."""
    if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be a tensor, got {type(value).__name__}")
