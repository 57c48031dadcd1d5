"""Every design of `khot.sample` from inclusion probabilities, at sizes of one batch."""

from __future__ import annotations

from khot.bench.cases import Case
from khot.bench.suite import Suite
from khot.designs.registry import names

__all__ = ["SUITE"]

SUITE = Suite(
    name="designs",
    title="all designs: running time of a draw as a multiple of torch.softmax",
    baseline="khot.bench.sides:softmax",
    sides=tuple(f"khot.bench.sampling:design:{name}" for name in names()),
    peers=(),
    cases=(Case("1×1000", (1, 1000), 10), Case("1024×100", (1024, 100), 10)),
    quick_cases=(Case("16×100", (16, 100), 10),),
)
