"""Selecting vectors by their scores, differentiably: ``select(values, scores, k, method=...)``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number, allowed_scores, check_count, check_mask, directed, position
from khot.relaxations._plain_arguments import check_floating, check_switch
from khot.relaxations.entries import entries_of
from khot.relaxations.facade import checked_options, topk, topk_matrix
from khot.relaxations.hard import Order, check_order, gathered, known_to_exist, ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["Selection", "select"]


class Selection(NamedTuple):
    """The result of :func:`khot.select`.

    ``values`` (…, k, d) are the selected vectors, ``weights`` (…, n) the k-hot weights of all entries, and
    ``indices`` (…, k) those of the hard top-k. If a row has fewer than k allowed entries, the remaining
    places have the index −1 and a vector of zeros. The weights may be computed only when they are first read.

    Example:
        >>> chosen = select(torch.eye(3), torch.tensor([0.3, 2.0, 1.0]), 2)
        >>> chosen.values.shape, chosen.weights.shape, chosen.indices.tolist()
        (torch.Size([2, 3]), torch.Size([3]), [1, 2])
    """

    values: Tensor
    weights: Tensor
    indices: Tensor


class _LateSelection(Selection):
    """A selection whose weights are computed when they are first read."""

    later: Callable[[], Tensor]

    @classmethod
    def of(cls, values: Tensor, later: Callable[[], Tensor], indices: Tensor) -> Selection:
        late = tuple.__new__(cls, (values, None, indices))  # pyright: ignore[reportUnknownMemberType]
        late.later = functools.cache(later)
        return late

    @property
    def weights(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.later()

    def __iter__(self) -> Iterator[Tensor]:
        yield from (self.values, self.weights, self.indices)

    def __getitem__(self, place: Any) -> Any:
        return cast("Any", tuple(self))[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, tuple(self)


def select(
    values: Tensor,
    scores: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = True,
    order: Order = "score",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    at_most: bool = False,
    **options: Any,
) -> Selection:
    r"""Select the ``k`` vectors with the largest scores, so that a gradient reaches the scores.

    With ``hard=True``, the default, the result is the k vectors unchanged, with the gradient of the soft
    selection. ``hard=False`` returns the soft selection itself: a method with weights only (such as
    ``"sigmoid"``) multiplies the k vectors by their weights; a method with one row per rank (such as
    ``"successive_halving"`` or ``"softsort"``) mixes all vectors: row r of its matrix times the values.

    Cost: that of the method. With ``"sigmoid"`` on the CPU no dense row of weights is written: selecting from
    one table of vectors takes little more time and memory than :func:`torch.topk` and indexing. The backward
    pass gives a gradient to every score.

    Args:
        values: vectors, shape ``(*scores.shape, d)``; or ``(n, d)``, one table that all rows of ``scores``
            select from (it is not expanded).
        scores: one for each vector. −inf is never selected, +inf always.
        k: how many, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: k unchanged vectors forward, the gradient of the soft selection backward.
        order: order the selected vectors by decreasing ``"score"``, or by ``"position"`` in the input.
        dim: the dimension of ``scores`` along which to select.
        mask: boolean, broadcastable to ``scores``, True where a vector may be selected. The values of
            excluded entries are not read.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        at_most: accept a ``k`` above n, and select all entries; the result still has k places.
        options: further options of the method.

    Returns:
        :class:`Selection` of ``values`` (size k along ``dim``, then d), ``weights`` like ``scores``, and
        ``indices``.

    Example:
        >>> values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
        >>> scores = torch.tensor([0.3, 2.0, 1.0], requires_grad=True)
        >>> chosen = select(values, scores, 2)
        >>> chosen.values.tolist(), chosen.indices.tolist()
        ([[0.0, 1.0], [2.0, 2.0]], [1, 2])
        >>> chosen.values.sum().backward()
        >>> [round(v, 2) for v in scores.grad.tolist()]
        [-0.42, -0.09, 0.52]
    """
    name = "select"
    spec = get(method, name)
    checked_options(name, spec, options, spec.matrix)
    check_order(name, order)
    check_switch(name, "hard", hard)
    last, shared = _checked(name, values, scores, dim, mask)
    k = check_count(name, scores, k, last, at_most=at_most)
    values = values if shared else values.movedim(last, -2)
    settings: dict[str, Any] = {"temperature": temperature, **options}
    if spec.matrix is None:
        entries, exists, dense = entries_of(
            name, scores, k, spec, settings, False, order, last, mask, largest
        )
        indices, weights, _ = entries
        chosen = _weighed(gathered(values, indices, exists), weights, hard)
    else:
        rows = allowed_scores(name, directed(name, scores, largest), mask).movedim(last, -1)
        blends, dense = _blended(spec, _readable(values, rows), rows, min(k, rows.shape[-1]), settings)
        # What a random method has selected is known by its weights.
        ranked = torch.where(rows == -math.inf, rows, dense) if spec.stochastic else rows
        indices, exists = ranked_indices(ranked, k)
        blends = torch.nn.functional.pad(blends, (0, 0, 0, k - blends.shape[-2]))
        chosen = straight_through(blends, gathered(values, indices, exists)) if hard else blends
        if order == "position":
            place = torch.where(exists, indices, rows.shape[-1]).argsort(-1)
            indices, exists = indices.gather(-1, place), exists.gather(-1, place)
            chosen = chosen.gather(-2, place.unsqueeze(-1).expand(chosen.shape))
    indices = indices if known_to_exist(exists) else torch.where(exists, indices, -1)
    chosen, indices = chosen.movedim(-2, last), indices.movedim(-1, last)
    if dense is not None:
        return Selection(chosen, dense.movedim(-1, last), indices)
    version = scores._version if is_plain(scores) and not scores.is_inference() else None

    def later() -> Tensor:
        if version is not None and scores._version != version:
            raise RuntimeError(f"{name}: scores were changed in place before the weights were asked for")
        few = min(k, scores.shape[last])
        return topk(scores, few, spec, dim=last, mask=mask, largest=largest, **settings)

    if version is None:
        return Selection(chosen, later(), indices)
    return _LateSelection.of(chosen, later, indices)


def _weighed(chosen: Tensor, weights: Tensor, hard: bool) -> Tensor:
    """The chosen vectors times their weights; unchanged if ``hard``, with the gradient of that product."""
    if hard and is_plain(weights) and not weights.requires_grad:
        return chosen
    factor = weights.unsqueeze(-1).to(chosen.dtype)
    return chosen * (straight_through(factor, torch.ones_like(factor)) if hard else factor)


def _blended(
    spec: Relaxation, values: Tensor, scores: Tensor, k: int, settings: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The blends (…, k, d) of a method with rows, and its weights (…, n)."""
    if spec.select is not None and values.dim() == scores.dim() + 1:
        return spec.select(values, scores, k, **settings)
    rows = topk_matrix(scores, k, spec, **settings)
    return rows.to(values.dtype) @ values, rows.sum(-2)


def _readable(values: Tensor, scores: Tensor) -> Tensor:
    """The values, with 0 for those of excluded entries where these may be anything: 0 · NaN is NaN."""
    excluded = scores == -math.inf
    if is_plain(excluded, values) and (not bool(excluded.any()) or bool(values.isfinite().all())):
        return values
    return torch.where(excluded.unsqueeze(-1), 0, values)


def _checked(name: str, values: Tensor, scores: Tensor, dim: int, mask: Tensor | None) -> tuple[int, bool]:
    """The non-negative index of ``dim``, and whether the values are one table for all rows."""
    last = position(name, scores, dim)
    check_floating(name, "values", values)
    shared = values.dim() == 2 and scores.dim() > 1 and values.shape[0] == scores.shape[last]
    if not shared and values.shape[:-1] != scores.shape:
        raise ValueError(
            f"{name}: values must have the shape of scores and one dimension more, {(*scores.shape, 'd')}, "
            f"or be one table for all rows, {(scores.shape[last], 'd')}; got {tuple(values.shape)}"
        )
    if mask is not None:
        check_mask(name, scores, mask)
    return last, shared
