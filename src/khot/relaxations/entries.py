"""Only the k selected entries, without a dense row of weights: for routers, autoencoders and beam search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, allowed_scores, check_count, directed, position
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.hard import Order, check_order, ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._sigmoid_entries import sigmoid_entries
from khot.relaxations.threshold.sigmoid import sigmoid_topk

__all__ = ["Entries", "entries_of", "gathered_entries", "topk_entries"]


class Entries(NamedTuple):
    """The result of :func:`khot.topk_entries`; each tensor has size k along the selected dimension.

    ``indices`` are those of the selected entries, ``weights`` their weights by the method, and ``values``
    their scores. If a row has fewer than k allowed entries, the remaining places have weight 0, value 0, no
    gradient, and an index that is still valid.

    Example:
        >>> entries = topk_entries(torch.tensor([3.0, 1.0, 2.0]), 2, hard=True)
        >>> entries.indices.tolist(), entries.weights.tolist(), entries.values.tolist()
        ([0, 2], [1.0, 1.0], [3.0, 2.0])
    """

    indices: Tensor
    weights: Tensor
    values: Tensor


def topk_entries(
    scores: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    order: Order = "score",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    at_most: bool = False,
    **options: Any,
) -> Entries:
    r"""The ``k`` largest ``scores`` along ``dim``, as in :func:`torch.topk`, with differentiable weights.

    The weights are those of :func:`khot.topk` at these entries. Their sum is at most k; they are not
    renormalised. Their gradient reaches *all* scores, including those that were not selected.

    Cost: that of :func:`khot.topk` and of :func:`torch.topk`. With ``"sigmoid"`` on the CPU no dense row of
    weights is written.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: how many, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`. A random method ranks
            entries by its weights.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: weights of 1 forward, the relaxation's gradient backward.
        order: order entries by decreasing ``"score"`` (ties by index), or by ``"position"``.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        at_most: accept a ``k`` above n, and select all entries; the result still has k places.
        options: further options of the method.

    Returns:
        :class:`Entries` of ``indices``, ``weights`` and ``values``, best first by default.

    Example:
        >>> scores = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
        >>> entries = topk_entries(scores, 2)
        >>> entries.indices.tolist(), [round(v, 3) for v in entries.weights.tolist()]
        ([0, 2], [0.859, 0.691])
        >>> entries.values.tolist()
        [3.0, 2.0]
    """
    name = "topk_entries"
    spec = get(method, name)
    checked_options(name, spec, options)
    check_order(name, order)
    check_switch(name, "hard", hard)
    last = position(name, scores, dim)
    k = check_count(name, scores, k, last, at_most=at_most)
    settings: dict[str, Any] = {"temperature": temperature, **options}
    entries, _, _ = entries_of(name, scores, k, spec, settings, hard, order, last, mask, largest)
    return Entries(*(places.movedim(-1, last) for places in entries))


def entries_of(
    name: str,
    scores: Tensor,
    k: int,
    spec: Relaxation,
    settings: Mapping[str, Any],
    hard: bool,
    order: Order,
    last: int,
    mask: Tensor | None,
    largest: bool,
) -> tuple[Entries, Tensor, Tensor | None]:
    """The entries (…, k), which of them exist, and the weights (…, n) if they were computed.

    The arguments must have been checked.
    """
    if spec.weights is sigmoid_topk:
        found = sigmoid_entries(name, scores, k, settings["temperature"], hard, order, last, mask, largest)
        if found is not None:
            return Entries(*found[0]), found[1], None
    rows = allowed_scores(name, directed(name, scores, largest), mask).movedim(last, -1)
    dense = topk(rows, min(k, rows.shape[-1]), spec, **settings)
    # What a random method has selected is known by its weights.
    ranked = torch.where(rows == -math.inf, rows, dense) if spec.stochastic else rows
    indices, exists = ranked_indices(ranked, k, order)
    weights = torch.where(exists, gathered_entries(dense, indices), 0)
    if hard:
        weights = straight_through(weights, exists.to(weights.dtype))
    values = torch.where(exists, gathered_entries(scores.movedim(last, -1), indices), 0)
    return Entries(indices, weights, values), exists, dense


def gathered_entries(rows: Tensor, indices: Tensor) -> Tensor:
    """The entries of rows (…, n) at indices (…, k)."""
    if rows.shape[-1]:
        return rows.gather(-1, indices)
    return rows.sum(-1, keepdim=True).expand(indices.shape)  # zeros, with a graph
