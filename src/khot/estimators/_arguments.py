"""What all estimators take: scores, how many, where they are, and a design."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from khot.designs import KHotDistribution
from khot.designs.registry import get
from khot.relaxations._arguments import allowed_scores, check_budget, compute_dtype, position

__all__ = ["Design", "distribution_of", "has_log_prob", "inclusion_of", "parameter_of", "rows_of"]

Design = str | type[KHotDistribution]


def rows_of(
    name: str, scores: Tensor, k: float, dim: int, mask: Tensor | None, largest: bool
) -> tuple[Tensor, int, int]:
    """The scores to draw by, with their dimension last and in the dtype of computation; k; where it was."""
    last = position(name, scores, dim)
    if isinstance(k, Tensor):
        raise TypeError(f"{name}: k must be a number, got a tensor")
    check_budget(name, scores, k, last, integer=True)
    rows = allowed_scores(name, scores if largest else -scores, mask)
    return rows.movedim(last, -1).to(compute_dtype(scores)), int(k), last


def has_log_prob(design: Design) -> bool:
    """Whether sets have a log-probability, without an order in which they came."""
    kind, base = get(design), KHotDistribution
    return kind._log_prob is not base._log_prob or kind.log_prob is not base.log_prob  # pyright: ignore[reportPrivateUsage]


def parameter_of(design: Design) -> str:
    """What an estimator takes scores for: logits, if the design has them."""
    return "logits" if "logits" in get(design).parameters else "scores"


def distribution_of(rows: Tensor, k: int, design: Design) -> KHotDistribution:
    """The design at these scores, with a gradient in them."""
    return cast("Any", get(design))(k, **{parameter_of(design): rows})


def inclusion_of(made: KHotDistribution) -> Tensor:
    """Its inclusion probabilities, with a gradient in the scores; the true ones where π is approximate."""
    of_scores = made.exact_inclusion and "logits" not in made.parameters
    return made.probs if of_scores else made.mean  # in the dtype of the scores where that will do
