"""k-hot at the price of one-hot: `sigmoid_topk` beside `torch.softmax`, `torch.topk` and the peers."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.peers import all_peers
from khot_bench.suite import Suite

__all__ = ["SUITE"]

_PEERS = (
    "bisection",
    "entmax_budget",
    "jaxopt_box_section",
    "torchsort_rank",
    "colt5_descent",
    "difftopk_softsort",
    "difftopk_neuralsort",
    "difftopk_network",
    "diffsort_network",
    "softtorch_topk",
)

SUITE = Suite(
    name="sigmoid",
    title="sigmoid_topk: running time as a multiple of torch.softmax",
    baseline="khot_bench.sides.baselines:softmax",
    sides=("khot.compare.cost.side:relaxation:sigmoid", "khot_bench.sides.baselines:topk"),
    peers=tuple(all_peers()[name] for name in _PEERS),
    cases=(
        Case("1×1e6", (1, 1_000_000), 1000),
        Case("64×65536", (64, 65536), 655),
        Case("16×16384", (16, 16384), 164),
        Case("1024×1024", (1024, 1024), 32),
        Case("4096×256", (4096, 256), 16),
        Case("8192×64", (8192, 64), 8),
        Case("1×16", (1, 16), 4),
    ),
    quick_cases=(Case("64×64", (64, 64), 8), Case("1×16", (1, 16), 4)),
    map="sigmoid",
)
