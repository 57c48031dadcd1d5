"""The arguments that all estimators share: scores, k, the dimension, and a design."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from khot.designs import KHotDistribution
from khot.designs.registry import get
from khot.relaxations._arguments import allowed_scores, check_budget, compute_dtype, directed, position
from khot.relaxations._plain_arguments import check_generator

__all__ = ["Design", "distribution_of", "has_log_prob", "inclusion_of", "parameter_of", "rows_of"]

Design = str | type[KHotDistribution]


def rows_of(
    name: str,
    scores: Tensor,
    k: float,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    generator: torch.Generator | None,
) -> tuple[Tensor, int, int]:
    """The checked scores with the drawn dimension last, in the dtype of computation; k; the dimension."""
    last = position(name, scores, dim)
    check_generator(name, generator)
    if isinstance(k, Tensor):
        raise TypeError(f"{name}: k must be a number, got a tensor")
    check_budget(name, scores, k, last, integer=True)
    rows = allowed_scores(name, directed(name, scores, largest), mask)
    return rows.movedim(last, -1).to(compute_dtype(scores)), int(k), last


def has_log_prob(design: Design) -> bool:
    """Whether sets have a log-probability without conditioning on an order."""
    kind, base = get(design), KHotDistribution
    return kind._log_prob is not base._log_prob or kind.log_prob is not base.log_prob  # pyright: ignore[reportPrivateUsage]


def parameter_of(design: Design) -> str:
    """How an estimator reads the scores: as logits, if the design accepts them."""
    return "logits" if "logits" in get(design).parameters else "scores"


def distribution_of(rows: Tensor, k: int, design: Design) -> KHotDistribution:
    """The design at these scores, with a gradient in them."""
    return cast("Any", get(design))(k, **{parameter_of(design): rows})


def inclusion_of(made: KHotDistribution) -> Tensor:
    """The inclusion probabilities, with a gradient in the scores; the true ones if π is approximate."""
    of_scores = made.exact_inclusion and "logits" not in made.parameters
    return made.probs if of_scores else made.mean  # in the dtype of the scores where that will do
