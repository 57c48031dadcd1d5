"""What is measured: named functions of scores and k, each loaded from a `module:function[:argument]` source.

A side is loaded by name of its source, not passed as an object, because its memory is measured in a
process of its own, which has to find the same function again.
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
        name: how tables call it.
        package: the distribution it comes from.
        version: the version that is installed.
        function: of the scores and k.
        kind: ours, PyTorch's own, or a peer's.
        result: what it gives: `weights` like x with sum k, a `distribution` like x with sum 1,
            `ranks` like x with sum n(n+1)/2, k `values`, an `order`, the indices of each row
            sorted, or k `blends` of vectors of length `BLEND_WIDTH`.
        map: the map it computes, where its result can be compared with a truth; elsewhere only the form of
            the result can be checked.
        note: what a reader of the table should know.
        along: the same function with the dimension, where it has such an argument.
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
    """The side that `module:function` or `module:function:argument` gives when called."""
    module_name, *rest = source.split(":")
    if len(rest) not in (1, 2):
        raise ValueError(f"source must read 'module:function' or 'module:function:argument'; got {source!r}")
    attribute, *arguments = rest
    side = getattr(importlib.import_module(module_name), attribute)(*arguments)
    if not isinstance(side, Side):
        raise TypeError(f"{source} must give a Side; it gave {type(side).__name__}")
    return side


def relaxation(name: str) -> Side:
    """A relaxation of khot's registry, called as a user calls it, at temperature 1."""
    function = registry.get(name).weights

    def call(x: Tensor, k: int) -> Tensor:
        return function(x, k)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return function(x, k, dim=dim)

    return Side(f"khot.{name}_topk", "khot", khot.__version__, call, "khot", map=name, along=along)
