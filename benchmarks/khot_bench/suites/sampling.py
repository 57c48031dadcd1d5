"""Drawing exactly k of a million, beside the softmax of the row."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="sampling",
    title="designs: running time of a draw as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=tuple(
        f"khot_bench.sides.draws:design:{name}"
        for name in ("systematic", "random_systematic", "tree_pivotal", "random_tree_pivotal")
    ),
    peers=(),
    cases=(
        Case("1×1e6", (1, 1_000_000), 1000),
        Case("1×1e6 half", (1, 1_000_000), 500_000),
        Case("1024×1000", (1024, 1000), 10),
    ),
    quick_cases=(Case("16×1000", (16, 1000), 10),),
)
