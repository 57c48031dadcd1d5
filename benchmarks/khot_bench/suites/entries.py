"""The k entries alone: `topk_entries` beside `torch.topk`."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="entries",
    title="topk_entries: running time as a multiple of torch.topk",
    baseline="khot_bench.sides.baselines:topk",
    sides=tuple(f"khot_bench.sides.selections:entries:{kind}" for kind in ("soft", "hard")),
    peers=(),
    cases=(
        Case("4096×64", (4096, 64), 8),
        Case("4096×3072", (4096, 3072), 32),
        Case("1024×32768", (1024, 32768), 64),
    ),
    quick_cases=(Case("64×64", (64, 64), 8),),
)
