"""What hard rows cost: `sigmoid_topk` on heavy tails, wide rows, ties and extreme budgets."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

_SHAPES = {"1×1e6": ((1, 1_000_000), 1000), "1024×1024": ((1024, 1024), 32), "8192×64": ((8192, 64), 8)}


def _cases() -> tuple[Case, ...]:
    cases: list[Case] = []
    for name, (shape, k) in _SHAPES.items():
        n = shape[-1]
        cases.append(Case(f"{name} k={k}", shape, k))
        cases.extend(
            Case(f"{name} {scores}", shape, k, scores=scores) for scores in ("cauchy", "wide", "ties")
        )
        cases.extend(Case(f"{name} k={other}", shape, other) for other in (1, n // 2, n - 1))
    return tuple(cases)


SUITE = Suite(
    name="hostile",
    title="sigmoid_topk on hostile rows: running time as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=("khot.compare.cost.side:relaxation:sigmoid",),
    peers=(),
    cases=_cases(),
    quick_cases=(Case("64×64", (64, 64), 8), Case("64×64 cauchy", (64, 64), 8, scores="cauchy")),
    map="sigmoid",
)
