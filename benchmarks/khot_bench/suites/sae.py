"""A training step of a sparse autoencoder with 3072 latents, beside the dense one."""

from __future__ import annotations

from khot.compare.cost.case import Case
from khot_bench.suite import Suite

__all__ = ["SUITE"]

SUITE = Suite(
    name="sae",
    title="Autoencoder of 3072 latents, forward (whole training step): as a multiple of the dense one",
    baseline="khot_bench.sides.autoencoders:dense:3072",
    sides=tuple(
        f"khot_bench.sides.autoencoders:entries:{activation}/3072"
        for activation in ("topk", "batch_topk", "sigmoid_topk")
    ),
    peers=(),
    cases=(Case("batch 4096, d 384", (4096, 384), 32),),
    quick_cases=(Case("batch 64, d 48", (64, 48), 8),),
    seconds=60.0,
)
