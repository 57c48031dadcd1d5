"""bfloat16 and float16: `sigmoid_topk` beside `torch.softmax` in the same type."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

_SHAPES = {
    "1×1e6": ((1, 1_000_000), 1000),
    "16×16384": ((16, 16384), 164),
    "1024×1024": ((1024, 1024), 32),
    "8192×64": ((8192, 64), 8),
}

SUITE = Suite(
    name="half",
    title="sigmoid_topk in types of 16 bits: running time as a multiple of torch.softmax in that type",
    baseline="khot_bench.sides.baselines:softmax",
    sides=("khot.compare.cost.side:relaxation:sigmoid",),
    peers=(),
    cases=tuple(
        Case(f"{name} {dtype}", shape, k, dtype)
        for dtype in ("bfloat16", "float16")
        for name, (shape, k) in _SHAPES.items()
    ),
    quick_cases=(Case("64×64", (64, 64), 8, "bfloat16"),),
    map="sigmoid",
)
