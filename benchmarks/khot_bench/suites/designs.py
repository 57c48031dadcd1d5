"""Every design of `khot.sample` from inclusion probabilities, at sizes of one batch."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot.designs import registry
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="designs",
    title="all designs: running time of a draw as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=tuple(f"khot_bench.sides.draws:design:{name}" for name in registry.names()),
    peers=(),
    cases=(Case("1×1000", (1, 1000), 10), Case("1024×100", (1024, 100), 10)),
    quick_cases=(Case("16×100", (16, 100), 10),),
)
