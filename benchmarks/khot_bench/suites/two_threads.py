"""`sigmoid_topk` beside `torch.softmax` and `torch.topk`, two threads each."""

from __future__ import annotations

import dataclasses

from khot_bench.suite import Suite
from khot_bench.suites.sigmoid import SUITE as ONE_THREAD

__all__ = ["SUITE"]

SUITE: Suite = dataclasses.replace(
    ONE_THREAD, name="two_threads", peers=(), cases=ONE_THREAD.cases[:-1], threads=(2,)
)
