"""The k-th best by all comparisons, in long rows."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="kth_best",
    title="kth_best: running time as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=("khot_bench.sides.operators:kth_best",),
    peers=(),
    cases=(Case("1×1e4", (1, 10_000), 1), Case("1×1e5", (1, 100_000), 1)),
    quick_cases=(Case("1×2000", (1, 2000), 1),),
    seconds=120,
)
