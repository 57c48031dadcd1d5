"""diffsort (Petersen 2021): a relaxed bitonic sorting network."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "diffsort.DiffSortNet"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    diffsort = import_quietly("diffsort", name=_NAME, package="diffsort==0.2.0")

    @lru_cache(maxsize=2)
    def network(n: int) -> Any:
        return diffsort.DiffSortNet("bitonic", n)

    def call(x: Tensor, k: int) -> Tensor:
        # It sorts ascending: the k best are the last columns of its matrix.
        return network(x.shape[-1])(x)[1][..., -k:].sum(-1)

    return Side(
        _NAME, "diffsort", version("diffsort"), call, "peer", note="bitonic; the network is built beforehand"
    )
