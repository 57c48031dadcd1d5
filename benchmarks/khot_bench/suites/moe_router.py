"""Whole routers of 64 experts, from hidden states to weights and indices."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="moe_router",
    title="Whole routers of 64 experts: running time as a multiple of the router of transformers",
    baseline="khot_bench.sides.routers:transformers_router",
    sides=tuple(
        f"khot_bench.sides.routers:router:{choice}"
        for choice in ("topk", "renormalised", "sigmoid", "sigmoid_topk", "straight_through", "sparse")
    ),
    peers=(),
    cases=(
        Case("4096 tokens, hidden 256", (4096, 256), 8),
        Case("4096 tokens, hidden 2048", (4096, 2048), 8),
    ),
    quick_cases=(Case("256 tokens, hidden 32", (256, 32), 2),),
)
