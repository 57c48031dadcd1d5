"""Calls that ``torch.compile`` leaves out of its graphs, because they depend on what other processes send."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch

__all__ = ["outside_graphs"]

P = ParamSpec("P")
T = TypeVar("T")


def outside_graphs(call: Callable[P, T]) -> Callable[P, T]:
    """The same call, outside of graphs: one ends before it, and another begins after it.

    ``torch.compiler.disable`` does this, but loads the compiler, which takes seconds. So it is used only if
    the compiler is loaded already.
    """
    made: list[Callable[P, T]] = []

    @functools.wraps(call)
    def outside(*args: P.args, **options: P.kwargs) -> T:
        if not made:
            if "torch._dynamo" not in sys.modules:
                return call(*args, **options)
            made.append(cast("Any", torch.compiler).disable(call))
        return made[0](*args, **options)

    return outside
