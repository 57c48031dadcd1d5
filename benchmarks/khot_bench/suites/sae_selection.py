"""Selecting the active latents of a batch: `khot.topk_entries` beside `torch.topk`."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="sae_selection",
    title="Selecting k of the latents: running time as a multiple of torch.topk, unsorted",
    baseline="khot_bench.sides.autoencoders:unsorted_topk",
    sides=("khot_bench.sides.autoencoders:hard_entries",),
    peers=(),
    cases=(
        Case("4096×3072", (4096, 3072), 32),
        Case("4096×12288", (4096, 12288), 32),
    ),
    quick_cases=(Case("64×256", (64, 256), 8),),
    seconds=60.0,
)
