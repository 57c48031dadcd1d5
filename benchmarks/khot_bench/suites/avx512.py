"""The threshold family beside `torch.softmax` with AVX-512, which other suites need not have."""

from __future__ import annotations

import dataclasses

from khot_bench.suite import Suite
from khot_bench.suites.sigmoid import SUITE as SIGMOID
from khot_bench.suites.threshold import SUITE as THRESHOLD

__all__ = ["SUITE"]

SUITE: Suite = dataclasses.replace(
    THRESHOLD,
    name="avx512",
    title="the threshold family with AVX-512: running time as a multiple of torch.softmax",
    peers=(),
    cases=SIGMOID.cases[:-1],
    map="sigmoid",
    threads=(1, 2),
    instruction_set="avx512",
)
