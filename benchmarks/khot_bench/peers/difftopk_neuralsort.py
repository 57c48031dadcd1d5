"""difftopk (Petersen 2022): NeuralSort, the whole n × n matrix, of which the k best ranks are summed."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "difftopk.NeuralSort"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    difftopk = import_quietly("difftopk", name=_NAME, package="difftopk==0.2.0")
    matrix = difftopk.NeuralSort()

    def call(x: Tensor, k: int) -> Tensor:
        # Its matrix is transposed and ascending: the best ranks are the last columns.
        return matrix(x)[..., -k:].sum(-1)

    return Side(_NAME, "difftopk", version("difftopk"), call, "peer", note="sum of the k best ranks' columns")
