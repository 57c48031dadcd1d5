"""The threshold family beside `torch.softmax`, and beside peers that project on the capped simplex."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.peers import all_peers
from khot_bench.suite import Suite

__all__ = ["SUITE"]

_PEERS = ("entmax_budget", "jaxopt_box_section")

SUITE = Suite(
    name="threshold",
    title="the threshold family: running time as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=(
        *(f"khot.compare.cost.side:relaxation:{name}" for name in ("sigmoid", "laplace", "sparse", "normal")),
        "khot_bench.sides.operators:sparse_of_norm:1.5",
    ),
    peers=tuple(all_peers()[name] for name in _PEERS),
    cases=(
        Case("1×1e6", (1, 1_000_000), 1000),
        Case("1024×1024", (1024, 1024), 32),
        Case("8192×64", (8192, 64), 8),
        Case("1×16", (1, 16), 4),
    ),
    quick_cases=(Case("64×64", (64, 64), 8), Case("1×16", (1, 16), 4)),
    map="sparse",
)
