"""Selecting vectors by their scores, differentiably: ``select(values, scores, k, method=...)``."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number, allowed_scores, budget, check_mask, position
from khot.relaxations.facade import checked_options, topk, topk_matrix
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["Combine", "Order", "Selection", "check_combine", "check_order", "select"]

Combine = Literal["straight_through", "soft"]
Order = Literal["score", "position"]


class Selection(NamedTuple):
    """What :func:`khot.select` gives.

    ``values`` (…, k, d) are the selected vectors, ``weights`` (…, n) the k-hot weights of all entries, and
    ``indices`` (…, k) those of the hard top-k; where a row has fewer than k allowed entries, the places left
    over have the index −1 and a vector of zeros.
    """

    values: Tensor
    weights: Tensor
    indices: Tensor


def select(
    values: Tensor,
    scores: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    *,
    combine: Combine | None = None,
    order: Order = "score",
    **options: Any,
) -> Selection:
    r"""Select the ``k`` vectors with the largest scores, so that a gradient reaches the scores.

    A method with weights alone (such as ``"sigmoid"``) selects the vectors of the hard top-k:
    ``"straight_through"`` passes them unchanged and gives the scores the gradient of the weights, ``"soft"``
    multiplies them by their weights. A method with rows (such as ``"successive_halving"``, ``"softsort"``)
    blends vectors, row r of its matrix times the values: ``"soft"``; with ``"straight_through"`` the result
    is the hard selection and only the gradient is that of the blend.

    Args:
        values: vectors, shape ``(*scores.shape, d)``.
        scores: one for each vector. −inf means excluded, +inf surely selected.
        k: how many, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        dim: the dimension of ``scores`` along which to select.
        mask: boolean, broadcastable to ``scores``, True where a vector may be selected. The values of
            excluded entries are not looked at.
        largest: False selects the smallest scores.
        combine: as above; by default ``"soft"`` for a method with rows, else ``"straight_through"``.
        order: the selected vectors by falling ``"score"``, or by ``"position"``, as they stood.
        options: of the method.

    Returns:
        :class:`Selection` of ``values`` (k in the place of ``dim``, then d), ``weights`` like ``scores``, and
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
    spec = method if isinstance(method, Relaxation) else get(method)
    name = "select"
    checked_options(name, spec, options, spec.matrix)
    last = _checked(name, values, scores, k, dim, mask)
    check_combine(name, combine)
    check_order(name, order)
    scores = allowed_scores(name, scores if largest else -scores, mask).movedim(last, -1)
    values = values.movedim(last, -2)
    excluded = scores == -math.inf
    if not is_plain(excluded) or bool(excluded.any()):  # their values may be anything, and 0 · NaN is NaN
        values = torch.where(excluded.unsqueeze(-1), 0, values)
    settings: dict[str, Any] = {"temperature": temperature, **options}
    blends = None
    if spec.matrix is None:
        weights = topk(scores, k, spec, **settings)
    else:
        blends, weights = _blended(spec, values, scores, k, settings)
    # What a random method has selected is known by its weights.
    ranked = torch.where(scores == -math.inf, scores, weights) if spec.stochastic else scores
    indices, exists = ranked_indices(ranked, k)
    chosen = values.gather(-2, indices.unsqueeze(-1).expand(*indices.shape, values.shape[-1]))
    chosen = torch.where(exists.unsqueeze(-1), chosen, 0)
    if blends is None:
        factor = weights.gather(-1, indices).unsqueeze(-1).to(values.dtype)
        if combine != "soft":
            factor = straight_through(factor, torch.ones_like(factor))
        chosen = chosen * factor
    else:
        chosen = straight_through(blends, chosen) if combine == "straight_through" else blends
    indices = torch.where(exists, indices, -1)
    if order == "position":
        place = torch.where(exists, indices, scores.shape[-1]).argsort(-1)
        indices = indices.gather(-1, place)
        chosen = chosen.gather(-2, place.unsqueeze(-1).expand(chosen.shape))
    return Selection(chosen.movedim(-2, last), weights.movedim(-1, last), indices.movedim(-1, last))


def _blended(
    spec: Relaxation, values: Tensor, scores: Tensor, k: int, settings: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The blends (…, k, d) of a method with rows, and its weights."""
    if spec.select is not None:
        return spec.select(values, scores, k, **settings)
    rows = topk_matrix(scores, k, spec, **settings)
    return rows.to(values.dtype) @ values, rows.sum(-2)


def check_combine(name: str, combine: str | None) -> None:
    """Raise unless it is one of the two, or None."""
    if combine not in (None, "straight_through", "soft"):
        raise ValueError(f"{name}: combine must be 'straight_through' or 'soft', got {combine!r}")


def check_order(name: str, order: str) -> None:
    """Raise unless it is one of the two."""
    if order not in ("score", "position"):
        raise ValueError(f"{name}: order must be 'score' or 'position', got {order!r}")


def _checked(name: str, values: Tensor, scores: Tensor, k: int, dim: int, mask: Tensor | None) -> int:
    """The non-negative index of ``dim``."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():  # pyright: ignore[reportUnnecessaryIsInstance]
        got = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: scores must be a floating-point tensor, got {got}")
    if not isinstance(values, Tensor) or not values.is_floating_point():  # pyright: ignore[reportUnnecessaryIsInstance]
        got = values.dtype if isinstance(values, Tensor) else type(values).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: values must be a floating-point tensor, got {got}")
    last = position(name, scores, dim)
    if values.shape[:-1] != scores.shape:
        raise ValueError(
            f"{name}: values must have the shape of scores and one dimension more, "
            f"{(*scores.shape, 'd')}, got {tuple(values.shape)}"
        )
    if isinstance(k, Tensor):
        raise TypeError(f"{name}: k must be an integer, got a tensor: the rows of the result have one shape")
    budget(name, scores, k, last, integer=True)
    if mask is not None:
        check_mask(name, scores, mask)
    return last
