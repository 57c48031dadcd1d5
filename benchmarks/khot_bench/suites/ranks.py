"""Soft ranks beside torchsort."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.peers import all_peers
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="ranks",
    title="soft_rank: running time as a multiple of torch.sort",
    baseline="khot_bench.sides.baselines:sort",
    sides=("khot_bench.sides.operators:soft_rank",),
    peers=(all_peers()["torchsort_rank"],),
    cases=(
        Case("128×1e2", (128, 100), 100),
        Case("128×1e3", (128, 1000), 1000),
        Case("128×1e4", (128, 10_000), 10_000),
        Case("1×1e6", (1, 1_000_000), 1_000_000),
    ),
    quick_cases=(Case("64×64", (64, 64), 64),),
)
