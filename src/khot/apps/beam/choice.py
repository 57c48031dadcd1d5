"""A soft choice of k among candidates, and the blends it defines."""

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
    """The soft choice of one step: each of k new hypotheses is a blend of m candidates.

    ``weights`` (B, k, m) are the weights of the candidates, ``parents`` (B, m) the hypotheses they continue,
    and ``tokens`` (B, m) the tokens they add. The candidates are sorted, best first: hard beam search has the
    r-th candidate in place r.

    Example:
        >>> weights = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
        >>> choice = BeamChoice(weights, parents=torch.tensor([[1, 0]]), tokens=torch.tensor([[5, 7]]))
        >>> choice.parent_weights(2)
        tensor([[[0.1000, 0.9000],
                 [0.8000, 0.2000]]])
    """

    weights: Tensor
    parents: Tensor
    tokens: Tensor

    def heads(self, values: Tensor) -> Tensor:
        """The values of the hard choice: the first k of values (B, m), padded with 0."""
        k = self.weights.shape[1]
        return torch.nn.functional.pad(values[:, :k], (0, max(0, k - values.shape[1])))

    def parent_weights(self, width: int) -> Tensor:
        """The weight of each of the ``width`` parents in each new hypothesis, (B, k, width)."""
        batch, k, _ = self.weights.shape
        empty = self.weights.new_zeros(batch, k, width)
        return empty.scatter_add(-1, self.parents.unsqueeze(1).expand_as(self.weights), self.weights)

    def blend(self, values: Tensor) -> Tensor:
        """Blend the values (B, width, …) of the parents into values (B, k, …) of the new hypotheses.

        Integers and booleans cannot be blended; they follow the hard choice.
        """
        if not values.is_floating_point():
            rows = torch.arange(len(values), device=values.device).unsqueeze(1)
            return values[rows, self.heads(self.parents)]
        weights = self.parent_weights(values.shape[1]).to(values.dtype)
        return (weights @ values.flatten(2)).view(*weights.shape[:2], *values.shape[2:])

    def embed(self, table: Tensor) -> Tensor:
        """The blended embeddings (B, k, d) of the new tokens, from an embedding table (V, d)."""
        return self.weights.to(table.dtype) @ table[self.tokens]


def soft_best(
    sums: Tensor, ranking: Tensor, count: int, k: int, settings: Mapping[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """The best ``count`` candidates (B, count), their blended sums (B, k) and their weights (B, k, count).

    ``ranking`` (B, n) is larger for better candidates, and −inf where there is no candidate.
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
