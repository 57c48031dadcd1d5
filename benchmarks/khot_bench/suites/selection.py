"""Selecting vectors: a tournament beside the least it could cost, a sort and one pass over the vectors."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="selection",
    title="select: running time as a multiple of a sort and one index_add",
    baseline="khot_bench.sides.selections:sort_and_index_add",
    sides=tuple(
        f"khot_bench.sides.selections:selection:{name}"
        for name in ("successive_halving", "iterative", "sigmoid")
    ),
    peers=(),
    cases=(
        Case("16×16384×32", (16, 16384), 128, scores="uniform"),
        Case("16×1024×32", (16, 1024), 32, scores="uniform"),
    ),
    quick_cases=(Case("4×256×32", (4, 256), 16, scores="uniform"),),
)
