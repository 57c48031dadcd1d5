"""difftopk (Petersen 2022): SoftSort, the whole n × n matrix, of which the first k rows are summed."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "difftopk.SoftSort"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    difftopk = import_quietly("difftopk", name=_NAME, package="difftopk==0.2.0")
    matrix = difftopk.SoftSort()

    def call(x: Tensor, k: int) -> Tensor:
        return matrix(x)[..., :k, :].sum(-2)

    return Side(_NAME, "difftopk", version("difftopk"), call, "peer", note="sum of the first k rows")
