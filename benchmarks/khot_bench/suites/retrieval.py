"""Selecting from one table of vectors by many rows of scores: `select` beside `torch.topk` and indexing."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="retrieval",
    title="select from one table: running time as a multiple of torch.topk and indexing",
    baseline="khot_bench.sides.selections:topk_and_indexing",
    sides=tuple(f"khot_bench.sides.selections:retrieval:{name}" for name in ("sigmoid", "sparse")),
    peers=(),
    cases=(
        Case("64×1e4×32", (64, 10_000), 10),
        Case("64×1e4×32 many", (64, 10_000), 100),
        Case("8×1e5×32", (8, 100_000), 100),
    ),
    quick_cases=(Case("4×256×32", (4, 256), 16),),
)
