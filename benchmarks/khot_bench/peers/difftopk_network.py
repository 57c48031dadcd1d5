"""difftopk (Petersen 2022): a relaxed odd-even sorting network."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "difftopk.DiffTopkNet"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    difftopk = import_quietly("difftopk", name=_NAME, package="difftopk==0.2.0")

    @lru_cache(maxsize=2)
    def network(n: int, k: int) -> Any:
        return difftopk.DiffTopkNet("odd_even", n, k)

    def call(x: Tensor, k: int) -> Tensor:
        return network(x.shape[-1], k)(x)[1].sum(-1)

    return Side(
        _NAME, "difftopk", version("difftopk"), call, "peer", note="odd-even; the network is built beforehand"
    )
