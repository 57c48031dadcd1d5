"""The threshold family beside `torch.softmax` with AVX-512, also in rows that end within a register."""

from __future__ import annotations

import dataclasses

from khot.compare.cost.case import Case
from khot_bench.suite import Suite
from khot_bench.suites.sigmoid import SUITE as SIGMOID
from khot_bench.suites.threshold import SUITE as THRESHOLD

__all__ = ["SUITE"]

SUITE: Suite = dataclasses.replace(
    THRESHOLD,
    name="avx512",
    title="the threshold family with AVX-512: running time as a multiple of torch.softmax",
    peers=(),
    cases=(*SIGMOID.cases[:-1], Case("8192×50", (8192, 50), 8)),
    map="sigmoid",
    instruction_set="avx512",
)
