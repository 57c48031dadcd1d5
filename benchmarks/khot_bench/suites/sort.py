"""The stable argsort under khot's operators beside `torch.sort`."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="sort",
    title="argsort: running time as a multiple of torch.sort",
    baseline="khot_bench.sides.baselines:sort",
    sides=("khot_bench.sides.operators:argsort",),
    peers=(),
    cases=(
        Case("1×1e6", (1, 1_000_000), 1_000_000),
        Case("1×1e6 double", (1, 1_000_000), 1_000_000, dtype="float64"),
        Case("128×1e4", (128, 10_000), 10_000),
        Case("1024×1024", (1024, 1024), 1024),
        Case("1024×1024 few values", (1024, 1024), 1024, scores="ties"),
        Case("8192×64", (8192, 64), 64),
        Case("1×16", (1, 16), 16),
    ),
    quick_cases=(Case("64×64", (64, 64), 64), Case("1×16", (1, 16), 16)),
    map="argsort",
)
