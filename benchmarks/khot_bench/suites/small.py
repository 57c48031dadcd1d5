"""What a small call costs, which is Python and not arithmetic: every operator at 16×64."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot.relaxations import registry
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="small",
    title="a small call: running time as a multiple of an empty autograd.Function",
    baseline="khot_bench.sides.baselines:empty_function",
    sides=(
        "khot_bench.sides.baselines:softmax",
        *(
            f"khot.compare.cost.side:relaxation:{name}"
            for name in registry.names()
            if not registry.get(name).stochastic
        ),
    ),
    peers=(),
    cases=(Case("16×64", (16, 64), 8),),
    quick_cases=(Case("16×64", (16, 64), 8),),
)
