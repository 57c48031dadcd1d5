"""Selection without a sort: `hard_topk` beside `torch.topk`."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="hard",
    title="hard_topk: running time as a multiple of torch.topk",
    baseline="khot_bench.sides.baselines:topk",
    sides=("khot_bench.sides.operators:hard_topk",),
    peers=(),
    cases=(
        Case("1×1e6", (1, 1_000_000), 1000),
        Case("1×1e6 half", (1, 1_000_000), 500_000),
        Case("1×1e6 few values", (1, 1_000_000), 1000, scores="ties"),
        Case("1×1e6 one value", (1, 1_000_000), 1000, scores="equal"),
        Case("1024×1024", (1024, 1024), 32),
        Case("1024×1024 half", (1024, 1024), 512),
        Case("1024×1024 few values", (1024, 1024), 32, scores="ties"),
        Case("1024×1024 one value", (1024, 1024), 32, scores="equal"),
        Case("1×16", (1, 16), 4),
    ),
    quick_cases=(Case("64×64", (64, 64), 8), Case("64×64 few values", (64, 64), 8, scores="ties")),
    map="hard",
)
