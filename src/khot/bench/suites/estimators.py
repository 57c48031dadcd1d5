"""A training step through k of n sampled units, beside Gumbel straight-through."""

from __future__ import annotations

from khot.bench.cases import Case
from khot.bench.suite import Suite

__all__ = ["SUITE"]

_CHOICES = (
    "sampled_straight_through/systematic",
    "sampled_straight_through/random_systematic",
    "sampled_straight_through/tree_pivotal",
    "sampled_straight_through/random_tree_pivotal",
    "simple",
    "reinmax",
    "reinmax/tree_pivotal",
    "imle",
    "adaptive_imle",
    "relaxed_subset",
)

SUITE = Suite(
    name="estimators",
    title="SampledTopK: running time of a training step as a multiple of Gumbel straight-through",
    baseline="khot.bench.estimating:sampled:gumbel_straight_through",
    sides=tuple(f"khot.bench.estimating:sampled:{choice}" for choice in _CHOICES),
    peers=(),
    cases=(Case("1024×1000", (1024, 1000), 10),),
    quick_cases=(Case("16×100", (16, 100), 5),),
    seconds=30.0,
)
