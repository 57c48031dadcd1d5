"""What all estimators take: scores, how many, and where they are."""

from __future__ import annotations

from torch import Tensor

from khot.designs import ConditionalPoisson, KHotDistribution, PlackettLuce
from khot.designs.facade import DESIGNS
from khot.relaxations import sigmoid_topk
from khot.relaxations._arguments import allowed_scores, check_budget, compute_dtype, position

__all__ = ["check_design", "distribution_of", "has_log_prob", "inclusion_of", "rows_of"]

_BY_SCORES = (ConditionalPoisson, PlackettLuce)  # whose logits are their natural parameters


def rows_of(
    name: str, scores: Tensor, k: int, dim: int, mask: Tensor | None, largest: bool
) -> tuple[Tensor, int]:
    """The scores to draw by, with their dimension last and in the dtype of computation, and where it was."""
    last = position(name, scores, dim)
    if not isinstance(k, int) or isinstance(k, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: k must be an integer, got {type(k).__name__}")
    check_budget(name, scores, k, last, integer=True)
    rows = allowed_scores(name, scores if largest else -scores, mask)
    return rows.movedim(last, -1).to(compute_dtype(scores)), last


def check_design(name: str, design: str) -> None:
    """Raise unless it is a name of a design."""
    if design not in DESIGNS:
        raise ValueError(f"{name}: unknown design {design!r}; known designs: {', '.join(DESIGNS)}")


def has_log_prob(design: str) -> bool:
    """Whether sets have a log-probability, without an order in which they came."""
    return DESIGNS[design].log_prob is not KHotDistribution.log_prob


def distribution_of(rows: Tensor, k: int, design: str) -> KHotDistribution:
    """The design at these scores, with a gradient in them."""
    kind = DESIGNS[design]
    return kind(k, logits=rows) if kind in _BY_SCORES else kind(k, probs=sigmoid_topk(rows, k))


def inclusion_of(made: KHotDistribution) -> Tensor:
    """Its inclusion probabilities, with a gradient in the scores; the true ones where π is approximate."""
    given = made.exact_inclusion and not isinstance(made, _BY_SCORES)
    return made.probs if given else made.mean
