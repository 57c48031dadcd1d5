"""What all estimators take: scores, how many, and where they are."""

from __future__ import annotations

from torch import Tensor

from khot.designs import ConditionalPoisson, KHotDistribution
from khot.designs.facade import DESIGNS
from khot.relaxations import sigmoid_topk
from khot.relaxations.arguments import allowed_scores, check_budget, compute_dtype, position

__all__ = ["check_design", "distribution_of", "rows_of"]


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


def distribution_of(rows: Tensor, k: int, design: str) -> tuple[KHotDistribution, Tensor]:
    """The design at these scores and its inclusion probabilities, with a gradient in the scores."""
    kind = DESIGNS[design]
    if kind is ConditionalPoisson:
        made = ConditionalPoisson(k, logits=rows)
        return made, made.mean
    pi = sigmoid_topk(rows, k)
    return kind(k, probs=pi), pi
