"""A soft choice of k among candidates, and what is blended by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.relaxations.facade import topk_matrix
from khot.relaxations.hard import ranked_indices

__all__ = ["BeamChoice", "soft_best"]


class BeamChoice(NamedTuple):
    """What hypotheses are blends of: ``weights`` (B, k, m) of candidates, their ``parents`` and ``tokens``.

    The m candidates come best first: the r-th is what hard beam search has at place r.
    """

    weights: Tensor
    parents: Tensor
    tokens: Tensor

    def heads(self, values: Tensor) -> Tensor:
        """What the hard choice has: the first k of values (B, m), and 0 in places beyond."""
        k = self.weights.shape[1]
        return torch.nn.functional.pad(values[:, :k], (0, max(0, k - values.shape[1])))

    def parent_weights(self, width: int) -> Tensor:
        """How much of each of the ``width`` parents is in each new hypothesis (B, k, width)."""
        batch, k, _ = self.weights.shape
        empty = self.weights.new_zeros(batch, k, width)
        return empty.scatter_add(-1, self.parents.unsqueeze(1).expand_as(self.weights), self.weights)

    def blend(self, values: Tensor) -> Tensor:
        """Values (B, width, …) of the parents, for the new hypotheses (B, k, …).

        Integers and booleans cannot be blended: they are those of the hard choice.
        """
        if not values.is_floating_point():
            rows = torch.arange(len(values), device=values.device).unsqueeze(1)
            return values[rows, self.heads(self.parents)]
        weights = self.parent_weights(values.shape[1]).to(values.dtype)
        return (weights @ values.flatten(2)).view(*weights.shape[:2], *values.shape[2:])

    def embed(self, table: Tensor) -> Tensor:
        """The new tokens' rows of an embedding table (V, d), blended: (B, k, d)."""
        return self.weights.to(table.dtype) @ table[self.tokens]


def soft_best(
    sums: Tensor, ranking: Tensor, count: int, k: int, settings: Mapping[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """The best ``count`` candidates (B, count), their blended sums (B, k) and their weights (B, k, count).

    ``ranking`` (B, n) says which are better, −inf that one is none.
    """
    order, exists = ranked_indices(ranking, count)
    candidates = torch.where(exists, ranking.gather(1, order), 0)
    few = min(k, count)
    weights = topk_matrix(candidates, few, mask=exists, **settings)
    finite = torch.where(exists, sums.gather(1, order), 0)
    scores = (weights.to(finite.dtype) @ finite.unsqueeze(-1)).squeeze(-1)
    scores = torch.where(exists[:, :few], scores, -math.inf)
    missing = (0, k - few)
    return (
        order,
        torch.nn.functional.pad(scores, missing, value=-math.inf),
        torch.nn.functional.pad(weights, (0, 0, *missing)),
    )
