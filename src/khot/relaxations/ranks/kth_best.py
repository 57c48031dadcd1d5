"""The k-th best vector: row k of pairwise top-k, times the vectors.

    Σ_i M[k, i] v_i,   M the rows of ``pairwise.py``.

Cost: O(n²) work in blocks, O(n) memory, forward and backward. Reference: the token-reduction notes of Haurum
et al. (2023). On ties, their hard formula returns nothing or a sum of vectors; here ties go by index.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, allowed_scores, check_count, directed, position
from khot.relaxations._plain_arguments import check_floating, check_switch
from khot.relaxations.hard import gathered, ranked_indices
from khot.relaxations.ranks._windows import matrix_from_ranks
from khot.relaxations.ranks.pairwise import pairwise_ranks
from khot.relaxations.straight_through import straight_through

__all__ = ["kth_best"]


def kth_best(
    values: Tensor,
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    window: Number | Tensor | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""The vector with the ``k``-th largest score, softly: :math:`\sum_i M_{k,i}\, v_i`.

    Units: the temperature divides differences of scores, the window divides differences of ranks. Cost: O(n²)
    work in blocks, O(n) memory, forward and backward.

    Args:
        values: vectors, shape ``(*scores.shape, d)``.
        scores: one for each vector. −inf takes no part, +inf is above all others.
        k: the rank: 1 is the vector with the largest score.
        temperature: > 0, of the comparisons, in the units of the scores; a number or a tensor that broadcasts
            to ``scores.shape`` without ``dim``.
        window: > 0, the width of the window in ranks, a number or a tensor like ``temperature``, which is the
            default.
        dim: the dimension of ``scores`` along which the k-th is taken.
        mask: boolean, broadcastable to ``scores``; entries with False take no part, their values are not
            read.
        largest: False takes the k-th smallest score.
        hard: exactly the k-th vector of a stable descending sort forward (one vector for each k, even with
            ties), this operator's gradient backward.

    Returns:
        Shape of ``values`` without the dimension ``dim`` of the scores; 0 where fewer than k are allowed.

    Example:
        >>> values = torch.tensor([[10.0], [20.0], [30.0]])
        >>> round(kth_best(values, torch.tensor([0.1, 0.9, 0.5]), 2, temperature=0.05).item(), 1)
        30.0

    Reference: the token-reduction notes of Haurum, Escalera, Taylor & Moeslund (2023).
    """
    name = "kth_best"
    last = position(name, scores, dim)
    check_floating(name, "values", values)
    if values.shape[:-1] != scores.shape:
        raise ValueError(
            f"{name}: values must have the shape of scores and one dimension more, {(*scores.shape, 'd')}, "
            f"got {tuple(values.shape)}"
        )
    check_switch(name, "hard", hard)
    k = check_count(name, scores, k, last)
    if k < 1:
        raise ValueError(f"{name}: k must be at least 1, which is the best, got k = {k}")
    scores = allowed_scores(name, directed(name, scores, largest), mask).movedim(last, -1)
    excluded = scores == -math.inf
    values = torch.where(excluded.unsqueeze(-1), 0, values.movedim(last, -2))  # 0 · NaN is NaN
    row = matrix_from_ranks(name, pairwise_ranks, scores, k, temperature, window, -1, None, first=k)
    soft = row.to(values.dtype) @ values
    if hard:
        indices, exists = ranked_indices(scores, k)
        soft = straight_through(soft, gathered(values, indices[..., k - 1 :], exists[..., k - 1 :]))
    return soft.squeeze(-2)
