"""The k selected entries alone, without a dense row of weights: for routers, autoencoders, beams."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, allowed_scores, check_count, directed, position
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.hard import Order, check_order, ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["Entries", "topk_entries"]


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
        scores: any floating shape. −inf means excluded, +inf surely selected.
        k: how many, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`. A random one ranks by
            its weights.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: weights of one forward, the relaxation's gradient backward.
        order: by falling ``"score"`` (ties by index), or by ``"position"``.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False selects the smallest; then +inf means excluded and −inf surely selected.
        at_most: a ``k`` above n selects all; there are k places all the same.
        options: of the method.

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
    towards = directed(scores, largest)
    rows = allowed_scores(name, towards, mask).movedim(last, -1)
    n = rows.shape[-1]
    dense = topk(rows, min(k, n), spec, temperature=temperature, **options)
    ranked = torch.where(rows == -math.inf, rows, dense) if spec.stochastic else rows
    indices, exists = ranked_indices(ranked, k, order)
    weights = torch.where(exists, _gather(dense, indices), 0)
    if hard:
        weights = straight_through(weights, exists.to(weights.dtype))
    values = torch.where(exists, _gather(scores.movedim(last, -1), indices), 0)
    return Entries(indices.movedim(-1, last), weights.movedim(-1, last), values.movedim(-1, last))


def _gather(rows: Tensor, indices: Tensor) -> Tensor:
    return rows.gather(-1, indices) if rows.shape[-1] else rows.new_zeros(indices.shape)
