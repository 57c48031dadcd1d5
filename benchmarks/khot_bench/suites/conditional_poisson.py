"""Conditional Poisson sampling beside a table in log space, made unit by unit."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="conditional_poisson",
    title="conditional Poisson: running time of table and draw as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",  # which has a gradient, as a baseline must
    sides=("khot_bench.sides.draws:conditional_poisson", "khot_bench.sides.draws:log_space"),
    peers=(),
    cases=(
        Case("1024×1000", (1024, 1000), 10),
        Case("1024×100", (1024, 100), 10),
        Case("16×1000", (16, 1000), 100),
    ),
    quick_cases=(Case("16×100", (16, 100), 5),),
)
