"""Sides that train through a sampled subset: the module `khot.nn.SampledTopK`, in training mode."""

from __future__ import annotations

import functools

from torch import Tensor

import khot
from khot.compare.cost.side import Side

__all__ = ["sampled"]


def sampled(choice: str) -> Side:
    """An estimator by name, or `name/design`."""
    estimator, _, design = choice.partition("/")

    @functools.lru_cache(maxsize=4)
    def layer(k: int) -> khot.nn.SampledTopK:
        return khot.nn.SampledTopK(k, design=design or None, estimator=estimator)

    def call(x: Tensor, k: int) -> Tensor:
        return layer(k)(x)

    name = ", ".join(part.replace("_", " ") for part in (estimator, design) if part)
    return Side(f"khot {name}", "khot", khot.__version__, call, "khot")
