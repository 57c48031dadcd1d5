"""The functions to measure: named functions of scores and k, loaded from `module:function[:argument]`.

A side is loaded by name, not passed as an object, because its memory is measured in a separate process, which
has to find the same function again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

import khot
from khot.relaxations import registry

__all__ = ["BLEND_WIDTH", "Kind", "Mode", "Result", "Side", "load_side", "relaxation"]

Kind = Literal["khot", "torch", "peer"]
Result = Literal["weights", "distribution", "ranks", "values", "order", "blends"]
BLEND_WIDTH = 32
Mode = Literal["forward", "forward+backward"]


@dataclass(frozen=True)
class Side:
    """A function to be timed.

    Args:
        name: its name in tables.
        package: the distribution it comes from.
        version: the installed version.
        function: the function of scores and k.
        kind: ours, PyTorch's own, or of another package.
        result: the kind of result: `weights` like x with sum k, a `distribution` like x with sum 1,
            `ranks` like x with sum n(n+1)/2, k `values`, an `order` (the indices that sort each row), or k
            `blends` of vectors of length `BLEND_WIDTH`.
        map: the map it computes, if its result can be compared with a reference; otherwise only the form of
            the result can be checked.
        note: a remark for readers of the table.
        along: the same function with a dimension, if it has such an argument.
    """

    name: str
    package: str
    version: str
    function: Callable[[Tensor, int], Tensor]
    kind: Kind
    result: Result = "weights"
    map: str = ""
    note: str = ""
    along: Callable[[Tensor, int, int], Tensor] | None = None


def load_side(source: str) -> Side:
    """The side that `module:function` or `module:function:argument` returns."""
    module_name, *rest = source.split(":")
    if len(rest) not in (1, 2):
        raise ValueError(f"source must read 'module:function' or 'module:function:argument'; got {source!r}")
    attribute, *arguments = rest
    side = getattr(importlib.import_module(module_name), attribute)(*arguments)
    if not isinstance(side, Side):
        raise TypeError(f"{source} must give a Side; it gave {type(side).__name__}")
    return side


def relaxation(name: str) -> Side:
    """A relaxation of khot's registry, called as users call it, at temperature 1."""
    function = registry.get(name).weights

    def call(x: Tensor, k: int) -> Tensor:
        return function(x, k)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return function(x, k, dim=dim)

    return Side(f"khot.{name}_topk", "khot", khot.__version__, call, "khot", map=name, along=along)
