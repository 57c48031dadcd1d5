"""Which references compete for a query, and which of them have its label.

These come from labels, or from the tuples that miners of pytorch-metric-learning return: (anchors, positives,
anchors, negatives) for pairs, (anchors, positives, negatives) for triplets. With such a tuple only the named
pairs compete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Pairs", "pairs_of"]

_TRIPLET, _PAIR = 3, 4


@dataclass(frozen=True)
class Pairs:
    """Labels of queries and references, or pairs (anchor, reference); and whether the sets are the same."""

    labels: Tensor | None
    ref_labels: Tensor | None
    positives: Tensor | None
    negatives: Tensor | None
    references: int
    same: bool

    def block(self, rows: slice, device: torch.device) -> tuple[Tensor, Tensor]:
        """``allowed`` and ``positive``, boolean (rows, references), for a block of queries."""
        count = rows.stop - rows.start
        if self.positives is not None and self.negatives is not None:
            positive = self._marked(self.positives, rows, device)
            allowed = positive | self._marked(self.negatives, rows, device)
        else:
            assert self.labels is not None
            assert self.ref_labels is not None
            positive = self.labels[rows].unsqueeze(-1) == self.ref_labels
            allowed = torch.ones(count, self.references, dtype=torch.bool, device=device)
        if self.same:
            here = torch.arange(count, device=device)
            other = torch.ones_like(allowed)
            other[here, here + rows.start] = False
            allowed, positive = allowed & other, positive & other
        return allowed, positive

    def _marked(self, pairs: Tensor, rows: slice, device: torch.device) -> Tensor:
        marked = torch.zeros(rows.stop - rows.start, self.references, dtype=torch.bool, device=device)
        inside = pairs[:, (pairs[0] >= rows.start) & (pairs[0] < rows.stop)]
        marked[inside[0] - rows.start, inside[1]] = True
        return marked


def pairs_of(
    name: str,
    queries: int,
    references: int,
    same: bool,
    labels: Tensor | None,
    ref_labels: Tensor | None,
    indices_tuple: Sequence[Tensor] | None,
) -> Pairs:
    """Check the arguments of a call, and return its pairs."""
    if indices_tuple is not None:
        if len(indices_tuple) not in (_TRIPLET, _PAIR):
            raise ValueError(
                f"{name}: indices_tuple must have 3 tensors (anchors, positives, negatives) or 4 (anchors, "
                f"positives, anchors, negatives), got {len(indices_tuple)}"
            )
        first, positives, *middle, negatives = indices_tuple
        second = middle[0] if middle else first
        found = [_checked(name, first, positives, queries, references)]
        found.append(_checked(name, second, negatives, queries, references))
        return Pairs(None, None, found[0], found[1], references, same)
    if labels is None:
        raise ValueError(f"{name}: labels are needed where there is no indices_tuple, got None")
    if labels.shape != (queries,):
        raise ValueError(
            f"{name}: labels must have a label for each of {queries} embeddings, got the shape "
            f"{tuple(labels.shape)}"
        )
    other = labels if ref_labels is None else ref_labels
    if other.shape != (references,):
        raise ValueError(
            f"{name}: ref_labels must have a label for each of {references} references, got the shape "
            f"{tuple(other.shape)}"
        )
    return Pairs(labels, other, None, None, references, same)


def _checked(name: str, anchors: Tensor, others: Tensor, queries: int, references: int) -> Tensor:
    for given in (anchors, others):
        if not isinstance(given, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name}: indices_tuple must have tensors, got {type(given).__name__}")
        if given.is_floating_point() or given.dtype == torch.bool:
            raise TypeError(f"{name}: indices_tuple must have integers, got {given.dtype}")
    if anchors.shape != others.shape or anchors.dim() != 1:
        raise ValueError(
            f"{name}: indices_tuple must have vectors of equal length, got the shapes {tuple(anchors.shape)} "
            f"and {tuple(others.shape)}"
        )
    found = torch.stack([anchors, others])
    if len(anchors) and (found.min() < 0 or anchors.max() >= queries or others.max() >= references):
        raise ValueError(
            f"{name}: indices_tuple must name 0 to {queries - 1} among embeddings and 0 to {references - 1} "
            f"among references, got {int(anchors.min())} to {int(anchors.max())} and {int(others.min())} to "
            f"{int(others.max())}"
        )
    return found
