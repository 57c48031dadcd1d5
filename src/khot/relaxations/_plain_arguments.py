"""Checks of arguments that need no scores: switches, choices, integers, generators, types of tensors.

An error names the function, the argument, the rule and the value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "check_callable",
    "check_choice",
    "check_dense",
    "check_dim",
    "check_floating",
    "check_generator",
    "check_integer",
    "check_number",
    "check_path",
    "check_real",
    "check_sample_shape",
    "check_switch",
    "check_switches",
    "check_tensor",
    "is_integer",
    "is_number",
    "is_scores",
]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_REAL = (*_DTYPES, torch.bool, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_switch(name: str, argument: str, value: bool) -> None:
    """Check that ``value`` is True or False: a text such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be True or False, got {value!r}")


def check_switches(name: str, **switches: bool) -> None:
    """Check that each is True or False."""
    for argument, value in switches.items():
        check_switch(name, argument, value)


def check_choice(name: str, argument: str, value: object, choices: Iterable[str]) -> None:
    """Check that ``value`` is one of the ``choices``."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:  # an array would be compared entry by entry
        words = ", ".join(repr(word) for word in known[:-1])
        raise ValueError(f"{name}: {argument} must be {words} or {known[-1]!r}, got {value!r}")


def check_dim(name: str, dim: int, argument: str = "dim") -> None:
    """Check that ``dim`` is an integer of Python; which there are depends on the tensor."""
    if not isinstance(dim, int) or isinstance(dim, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be an integer, got {dim!r}")


def check_number(name: str, argument: str, value: Any) -> None:
    """Check that ``value`` is a real number of Python or NumPy; True is none."""
    if not is_number(value):
        raise TypeError(f"{name}: {argument} must be a number, got {value!r}")


def check_integer(name: str, argument: str, value: Any, least: int = 1) -> None:
    """Check that ``value`` is an integer and not too small; True is none."""
    if not is_integer(value):
        raise TypeError(f"{name}: {argument} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: {argument} must be at least {least}, got {value}")


def check_path(name: str, argument: str, value: Any) -> None:
    """Check that ``value`` is the path of a file or a folder."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: {argument} must be a path, got {value!r}")


def is_integer(value: Any) -> bool:
    """Whether ``value`` is an integer of Python, NumPy or a traced graph; True is none."""
    return isinstance(value, (int, np.integer, torch.SymInt)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a real number of Python or NumPy; True is none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_callable(name: str, argument: str, value: Any) -> None:
    """Check that ``value`` can be called."""
    if not callable(value):
        raise TypeError(f"{name}: {argument} must be a function, got {value!r}")


def check_generator(name: str, generator: torch.Generator | None) -> None:
    """Check that ``generator`` is a generator, or None for torch's global one."""
    if generator is not None and not isinstance(generator, torch.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: generator must be a torch.Generator or None, got {generator!r}")


def check_sample_shape(name: str, shape: Any, argument: str = "sample_shape") -> None:
    """Check that ``shape`` says how many draws, or how large a batch is: a tuple of integers."""
    sizes = cast("tuple[Any, ...]", tuple(shape) if isinstance(shape, (tuple, list)) else (None,))  # pyright: ignore[reportUnknownArgumentType]
    if not all(map(is_integer, sizes)):
        raise TypeError(f"{name}: {argument} must be a tuple of integers, got {shape!r}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"{name}: {argument} must not be negative, got {sizes}")


def check_tensor(name: str, argument: str, value: Tensor) -> None:
    """Check that ``value`` is a tensor."""
    if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(value).__name__}")


def check_floating(name: str, argument: str, value: Tensor) -> None:
    """Check that ``value`` is a dense floating-point tensor with enough digits."""
    check_tensor(name, argument, value)
    if value.dtype not in _DTYPES:
        few = ", which has too few digits" if value.is_floating_point() else ""
        raise TypeError(
            f"{name}: {argument} must have a floating-point dtype, got {value.dtype}{few}; "
            f"use {argument}.float()"
        )
    check_dense(name, argument, value)


def check_real(name: str, argument: str, value: Tensor) -> None:
    """Check that ``value`` is a dense tensor of real numbers or booleans."""
    check_tensor(name, argument, value)
    if value.dtype not in _REAL:
        raise TypeError(f"{name}: {argument} must be a boolean or real tensor, got {value.dtype}")
    check_dense(name, argument, value)


def check_dense(name: str, argument: str, value: Tensor) -> None:
    """Check that the tensor ``value`` is neither sparse nor nested."""
    if torch.compiler.is_compiling():  # Dynamo cannot ask for the layout where it traces a backward pass
        return
    if value.layout != torch.strided:
        raise TypeError(f"{name}: {argument} must be dense, got {value.layout}; use {argument}.to_dense()")
    if value.is_nested:
        raise TypeError(
            f"{name}: {argument} must be dense, got a nested tensor; pad it, {argument}.to_padded_tensor(…), "
            "and exclude the padding by a mask"
        )


def is_scores(value: Any) -> bool:
    """Whether ``value`` is a tensor of a dtype that scores may have."""
    return isinstance(value, Tensor) and value.dtype in _DTYPES
