"""The k selected entries alone, without a dense row of weights: for routers, autoencoders, beams."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    check_count,
    directed,
    position,
)
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.hard import Order, check_order, ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._sigmoid_entries import sigmoid_entries

__all__ = ["Entries", "entries_of", "gathered_entries", "topk_entries"]


class Entries(NamedTuple):
    """What :func:`khot.topk_entries` gives, each with k in the place of the selected dimension.

    ``indices`` of the selected entries, their ``weights`` by the method, and ``values``, the scores there.
    Where a row has fewer than k allowed entries, the places left over have weight 0, value 0, no gradient,
    and an index that is valid all the same.
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
    r"""The ``k`` largest ``scores`` along ``dim``, as :func:`torch.topk` finds them, with weights that train.

    The weights are those of :func:`khot.topk` at these entries: their sum is at most k, they are not
    renormalised, and their gradient reaches *all* scores, also those that were not selected.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: how many, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`. A random one ranks by
            its weights.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: weights of one forward, the relaxation's gradient backward.
        order: by falling ``"score"`` (ties by index), or by ``"position"``.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        at_most: a ``k`` above n selects all; there are k places all the same.
        options: further options of the method.

    Returns:
        :class:`Entries` of ``indices``, ``weights`` and ``values``, best first.

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
    """The entries, with k in the last place, which of them exist, and the weights (…, n) if they were needed.

    For arguments that were checked.
    """
    if spec.name == "sigmoid":
        found = sigmoid_entries(name, scores, k, settings["temperature"], hard, order, last, mask, largest)
        if found is not None:
            return Entries(*found[0]), found[1], None
    rows = allowed_scores(name, directed(scores, largest), mask).movedim(last, -1)
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
