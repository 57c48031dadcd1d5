"""What is measured: named functions of scores and k, each loaded from a `module:function[:argument]` source.

A side is loaded by name of its source, not passed as an object, because its memory is measured in a
process of its own, which has to find the same function again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import khot
from khot.kernels import sorting
from khot.relaxations import registry

__all__ = [
    "BLEND_WIDTH",
    "Kind",
    "Mode",
    "Result",
    "Side",
    "argsort",
    "hard_topk",
    "kth_best",
    "load_side",
    "odd_even_topk",
    "relaxation",
    "soft_rank",
    "softmax",
    "sort",
    "topk",
]

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
        map: the map it computes, if `khot.bench.truths` has a truth for it to be compared with;
            elsewhere only the form of its result is checked.
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


def softmax() -> Side:
    """`torch.softmax`, the price of one-hot."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.softmax(x, -1)

    return Side("torch.softmax", "torch", torch.__version__, call, "torch", "distribution")


def topk() -> Side:
    """`torch.topk`, the hard selection with sorted values."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.topk(x, k).values

    return Side("torch.topk", "torch", torch.__version__, call, "torch", "values")


def sort() -> Side:
    """`torch.sort`, values and indices, as it is by default: not stable."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.sort(x).values

    return Side("torch.sort", "torch", torch.__version__, call, "torch", "values")


def relaxation(name: str) -> Side:
    """A relaxation of khot's registry, called as a user calls it, at temperature 1."""
    function = registry.get(name).weights

    def call(x: Tensor, k: int) -> Tensor:
        return function(x, k)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return function(x, k, dim=dim)

    return Side(f"khot.{name}_topk", "khot", khot.__version__, call, "khot", map=name, along=along)


def odd_even_topk() -> Side:
    """`khot.network_topk` with the network of difftopk's defaults."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.network_topk(x, k, network="odd_even", distribution="cauchy")

    note = "odd-even, Cauchy"
    return Side("khot.network_topk odd-even", "khot", khot.__version__, call, "khot", note=note)


def soft_rank() -> Side:
    """`khot.soft_rank` at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.soft_rank(x)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return khot.soft_rank(x, dim=dim)

    return Side("khot.soft_rank", "khot", khot.__version__, call, "khot", "ranks", along=along)


def kth_best() -> Side:
    """`khot.kth_best`, the median of each row by all comparisons, at temperature 1."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.kth_best(x.unsqueeze(-1), x, x.shape[-1] // 2)

    return Side("khot.kth_best", "khot", khot.__version__, call, "khot", "values")


def hard_topk() -> Side:
    """`khot.hard_topk`, an indicator without gradient."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.hard_topk(x, k)

    return Side("khot.hard_topk", "khot", khot.__version__, call, "khot", map="hard")


def argsort() -> Side:
    """The argsort that khot's operators use: values and indices, stable."""

    def call(x: Tensor, k: int) -> Tensor:
        return sorting.argsort(x)[1]

    return Side("khot argsort", "khot", khot.__version__, call, "khot", "order", "argsort")
