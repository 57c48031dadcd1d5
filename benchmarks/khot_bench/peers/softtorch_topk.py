"""softtorch: its `topk` with the default method, NeuralSort."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "softtorch.topk"


def load() -> Side:
    """The side, or `PeerAbsent`."""
    softtorch = import_quietly(
        "softtorch", name=_NAME, package="softtorch==0.1.1", pip_options="--ignore-requires-python"
    )

    def call(x: Tensor, k: int) -> Tensor:
        return softtorch.topk(x, k).indices.sum(-2)

    def along(x: Tensor, k: int, dim: int) -> Tensor:
        return softtorch.topk(x, k, dim=dim).indices.sum(-2)

    note = "sum of its k soft indices"
    return Side(_NAME, "softtorch", version("softtorch"), call, "peer", note=note, along=along)
