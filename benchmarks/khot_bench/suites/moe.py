"""Routing tokens to experts, from logits to weights and indices."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="moe",
    title="Routing from logits: running time as a multiple of softmax, topk, renormalise",
    baseline="khot_bench.sides.routers:transformers_selection",
    sides=tuple(
        f"khot_bench.sides.routers:selection:{choice}"
        for choice in ("topk", "renormalised", "sigmoid", "sigmoid_topk", "straight_through", "sparse")
    ),
    peers=(),
    cases=(
        Case("4096×64", (4096, 64), 8),
        Case("4096×8", (4096, 8), 2),
        Case("4096×256", (4096, 256), 8),
    ),
    quick_cases=(Case("256×16", (256, 16), 2),),
)
