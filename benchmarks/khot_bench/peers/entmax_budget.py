"""entmax (Peters, Niculae & Martins): the Euclidean projection on the capped simplex, by bisection."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "entmax.budget_bisect"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    entmax = import_quietly("entmax", name=_NAME, package="entmax==1.3")

    def call(x: Tensor, k: int) -> Tensor:
        return entmax.budget_bisect(x, budget=k)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return entmax.budget_bisect(x, budget=k, dim=dim)

    return Side(_NAME, "entmax", version("entmax"), call, "peer", map="sparse", along=along)
