"""torchsort (Koker, after Blondel 2020): soft ranks by isotonic regression."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "torchsort.soft_rank"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    torchsort = import_quietly(
        "torchsort", name=_NAME, package="torchsort==0.1.10", pip_options="--no-build-isolation"
    )

    def call(x: Tensor, k: int) -> Tensor:
        return torchsort.soft_rank(x)

    return Side(_NAME, "torchsort", version("torchsort"), call, "peer", "ranks")
