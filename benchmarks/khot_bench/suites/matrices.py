"""Rows for every rank: softsort, neuralsort and sorting networks beside difftopk and diffsort."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.peers import all_peers
from khot_bench.suite import Suite

__all__ = ["SUITE"]

_PEERS = ("difftopk_softsort", "difftopk_neuralsort", "diffsort_network", "difftopk_network")

SUITE = Suite(
    name="matrices",
    title="operators with a row for every rank: running time as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=(
        *(f"khot.compare.cost.side:relaxation:{name}" for name in ("softsort", "neuralsort", "network")),
        "khot_bench.sides.operators:odd_even_topk",
    ),
    peers=tuple(all_peers()[name] for name in _PEERS),
    cases=(
        Case("16×1e3 k=8", (16, 1000), 8),
        Case("16×1e3 k=32", (16, 1000), 32),
        Case("16×128", (16, 128), 8),
        Case("4×1e4", (4, 10_000), 8),
    ),
    quick_cases=(Case("8×64", (8, 64), 8),),
)
