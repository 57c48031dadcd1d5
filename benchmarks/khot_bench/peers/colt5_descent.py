"""colt5-attention (Wang, after Ainslie 2023): entropic top-k by coordinate descent."""

from __future__ import annotations

from importlib.metadata import version

from torch import Tensor

from khot.compare.cost.side import Side
from khot_bench.peers import import_quietly

_NAME = "colt5.coor_descent"
_ITERATIONS = 20
_EPSILON = 0.1


def load() -> Side:
    """The side, or `PeerAbsent`."""
    module = import_quietly("colt5_attention.coor_descent", name=_NAME, package="colt5-attention==0.11.2")

    def call(x: Tensor, k: int) -> Tensor:
        return module.coor_descent(x, k=k, n_iters=_ITERATIONS, eps=_EPSILON)

    return Side(
        _NAME,
        "colt5-attention",
        version("colt5-attention"),
        call,
        "peer",
        note=f"{_ITERATIONS} iterations at eps {_EPSILON}, as its topk does",
    )
