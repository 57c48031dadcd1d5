r"""Ranking metrics: how many relevant entries are among the k largest scores.

Each returns one number per row (a user, a query); the figure usually published is the mean over rows. The
rules are the same for all:

- Entries are ranked by score; ties go to the lower index, as in ``hard_topk``. (scikit-learn's ``ndcg_score``
  averages over ties; with distinct scores ``ndcg_at_k`` equals it.)
- An entry that the mask excludes takes no part. An entry with a score of −inf is never ranked, but if it is
  relevant, it counts as missed.
- A row without a relevant entry gives 0, as in scikit-learn; ``relevance.any(-1)`` tells which rows have one.
- Results are in float32, or float64 if the scores are, and have no gradient. For training use
  ``khot.losses.recall_loss`` and ``khot.losses.ndcg_loss``.

Cost: one selection of k. Reference: Manning, Raghavan & Schütze (2008), Introduction to Information
Retrieval, chapter 8.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.metrics._relevance import Gain, check_gain, check_relevance, relative_gains
from khot.relaxations._arguments import (
    allowed_scores,
    check_count,
    check_device,
    check_mask,
    compute_dtype,
    position,
)
from khot.relaxations._plain_arguments import check_real
from khot.relaxations.hard import ranked_indices

__all__ = ["hit_rate", "mrr", "ndcg_at_k", "precision_at_k", "recall_at_k"]


def recall_at_k(
    scores: Tensor, relevance: Tensor, k: int, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""The share of the relevant entries that are among the ``k`` largest scores.

    .. math:: \frac{|\operatorname{top}_k(s) \cap R|}{|R|}

    A row without a relevant entry gives 0. Cost: one selection of k.

    Args:
        scores: a floating-point tensor of any shape. −inf is never ranked; ties go to the lower index.
        relevance: the relevant entries: booleans, or 0 and 1, of the shape of ``scores``.
        k: how many of the largest scores count, an integer, 1 ≤ k ≤ n.
        dim: the dimension along which entries are ranked.
        mask: boolean, broadcastable to ``scores``; entries with False take no part.

    Returns:
        Shares in [0, 1], of the shape of ``scores`` without ``dim``.

    Example:
        >>> scores = torch.tensor([0.9, 0.1, 0.8, 0.3])
        >>> recall_at_k(scores, torch.tensor([True, True, False, True]), 2).item()
        0.333...

    Reference: Manning, Raghavan & Schütze (2008), Introduction to Information Retrieval.
    """
    places, relevant = _ranked("recall_at_k", scores, relevance, k, dim, mask, binary=True)
    count = relevant.sum(-1)
    return places.sum(-1) / count.clamp_min(1)


def precision_at_k(
    scores: Tensor, relevance: Tensor, k: int, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""The share of the ``k`` largest scores that are relevant.

    .. math:: \frac{|\operatorname{top}_k(s) \cap R|}{k}

    If fewer than k entries are allowed, the missing ones count as not relevant. Cost: one selection of k.

    Args:
        scores: a floating-point tensor of any shape. −inf is never ranked; ties go to the lower index.
        relevance: the relevant entries: booleans, or 0 and 1, of the shape of ``scores``.
        k: how many of the largest scores count, an integer, 1 ≤ k ≤ n.
        dim: the dimension along which entries are ranked.
        mask: boolean, broadcastable to ``scores``; entries with False take no part.

    Returns:
        Shares in [0, 1], of the shape of ``scores`` without ``dim``.

    Example:
        >>> scores = torch.tensor([0.9, 0.1, 0.8, 0.3])
        >>> precision_at_k(scores, torch.tensor([True, True, False, True]), 2).item()
        0.5

    Reference: Manning, Raghavan & Schütze (2008), Introduction to Information Retrieval.
    """
    places, _ = _ranked("precision_at_k", scores, relevance, k, dim, mask, binary=True)
    return places.sum(-1) / k


def hit_rate(
    scores: Tensor, relevance: Tensor, k: int, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""1 if a relevant entry is among the ``k`` largest scores, else 0; the mean over rows is the hit rate.

    Cost: one selection of k.

    Args:
        scores: a floating-point tensor of any shape. −inf is never ranked; ties go to the lower index.
        relevance: the relevant entries: booleans, or 0 and 1, of the shape of ``scores``.
        k: how many of the largest scores count, an integer, 1 ≤ k ≤ n.
        dim: the dimension along which entries are ranked.
        mask: boolean, broadcastable to ``scores``; entries with False take no part.

    Returns:
        Zeros and ones, of the shape of ``scores`` without ``dim``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1, 0.8], [0.1, 0.5, 0.3]])
        >>> hit_rate(scores, torch.tensor([[0, 0, 1], [1, 0, 0]]), 2).tolist()
        [1.0, 0.0]
    """
    places, _ = _ranked("hit_rate", scores, relevance, k, dim, mask, binary=True)
    return places.amax(-1)


def mrr(
    scores: Tensor, relevance: Tensor, k: int | None = None, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""One over the rank of the first relevant entry; the mean over rows is the mean reciprocal rank.

    .. math:: \max_{r \le k,\; i_r \in R} \frac1r, \qquad i_1, i_2, \dots \text{ by decreasing score}

    0 if no relevant entry is among the k largest scores. Cost: one selection of k.

    Args:
        scores: a floating-point tensor of any shape. −inf is never ranked; ties go to the lower index.
        relevance: the relevant entries: booleans, or 0 and 1, of the shape of ``scores``.
        k: how many of the largest scores count, an integer, 1 ≤ k ≤ n; None for all.
        dim: the dimension along which entries are ranked.
        mask: boolean, broadcastable to ``scores``; entries with False take no part.

    Returns:
        Numbers in [0, 1], of the shape of ``scores`` without ``dim``.

    Example:
        >>> scores = torch.tensor([0.9, 0.1, 0.8, 0.3])
        >>> mrr(scores, torch.tensor([False, True, False, True])).item()
        0.333...

    Reference: Voorhees (1999), The TREC-8 Question Answering Track Report.
    """
    name = "mrr"
    last = position(name, scores, dim)
    k = scores.shape[last] if k is None else k
    places, _ = _ranked(name, scores, relevance, k, dim, mask, binary=True)
    return (places / _ranks(places)).amax(-1)


def ndcg_at_k(
    scores: Tensor,
    relevance: Tensor,
    k: int,
    *,
    gain: Gain = "linear",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    r"""The normalised discounted cumulative gain of the ``k`` largest scores.

    .. math:: \frac{\sum_{r \le k} g_{i_r} / \log_2(1 + r)}{\sum_{r \le k} g_{(r)} / \log_2(1 + r)}

    with :math:`i_r` the entry of rank r and :math:`g_{(r)}` the r-th largest gain. A row without a relevant
    entry gives 0. With the linear gain and distinct scores it equals scikit-learn's ``ndcg_score``. The
    exponential gain is the default of :func:`khot.losses.ndcg_loss`. Cost: two selections of k.

    Args:
        scores: a floating-point tensor of any shape. −inf is never ranked; ties go to the lower index.
        relevance: how relevant each entry is: booleans, integers or floats, finite and ≥ 0.
        k: how many of the largest scores count, an integer, 1 ≤ k ≤ n.
        gain: ``"linear"``, the relevance itself, or ``"exponential"``, 2^relevance − 1.
        dim: the dimension along which entries are ranked.
        mask: boolean, broadcastable to ``scores``; entries with False take no part, neither in the ranking
            nor in the ideal ranking.

    Returns:
        Numbers in [0, 1], of the shape of ``scores`` without ``dim``.

    Example:
        >>> scores, relevance = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 2])
        >>> round(ndcg_at_k(scores, relevance, 3).item(), 4)
        0.7602

    Reference: Järvelin & Kekäläinen (2002), Cumulated Gain-Based Evaluation of IR Techniques.
    """
    name = "ndcg_at_k"
    check_gain(name, gain)
    places, relevant = _ranked(name, scores, relevance, k, dim, mask, gain=gain)
    discounts = 1 / torch.log2(1 + _ranks(places))
    ideal = (relevant.sort(-1, descending=True).values[..., : places.shape[-1]] * discounts).sum(-1)
    found = (places * discounts).sum(-1)
    return torch.where(ideal > 0, found / torch.where(ideal > 0, ideal, 1), 0)


class _Ranked(NamedTuple):
    """What the ``places`` (…, k) hold, by falling score, and all that there is, ``relevant`` (…, n).

    Both are gains in the dtype of computation; 0 where a place is empty and where the mask excludes.
    """

    places: Tensor
    relevant: Tensor


def _ranked(
    name: str,
    scores: Tensor,
    relevance: Tensor,
    k: int,
    dim: int,
    mask: Tensor | None,
    *,
    binary: bool = False,
    gain: Gain = "linear",
) -> _Ranked:
    """Check the arguments of the metric called ``name`` and rank."""
    last = position(name, scores, dim)
    check_real(name, "relevance", relevance)
    if relevance.shape != scores.shape:
        raise ValueError(
            f"{name}: relevance must have the shape of scores, {tuple(scores.shape)}, "
            f"got {tuple(relevance.shape)}"
        )
    check_device(name, scores, "relevance", relevance)
    n = scores.shape[last]
    places = check_count(name, scores, k, last)
    if places < 1:
        raise ValueError(f"{name}: k must satisfy 1 <= k <= n = {n}, got k = {places}")
    if mask is not None:
        check_mask(name, scores, mask)
        relevance = torch.where(mask, relevance, 0)
    check_relevance(name, relevance, binary=binary)
    rows = allowed_scores(name, scores.detach(), mask).movedim(last, -1)
    if is_plain(rows) and bool(rows.isnan().any()):
        raise ValueError(f"{name}: scores must not be NaN, a ranking has no place for it")
    relevant, dtype = relevance.detach().movedim(last, -1), compute_dtype(scores)
    relevant = relevant.to(dtype) if binary else relative_gains(relevant, gain, dtype)
    indices, exists = ranked_indices(rows, places)
    return _Ranked(torch.where(exists, relevant.gather(-1, indices), 0), relevant)


def _ranks(places: Tensor) -> Tensor:
    return torch.arange(1, places.shape[-1] + 1, dtype=places.dtype, device=places.device)
