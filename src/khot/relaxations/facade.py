"""One call for every relaxation: k-hot weights, soft one-hot rows, and soft values by them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, allowed_scores, budget, position
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold.sparse import sparse_topk

__all__ = ["checked_options", "has_rows", "options_of", "topk", "topk_matrix", "topk_values"]

_SHARED = ("temperature", "dim", "mask", "hard")


def topk(
    x: Tensor,
    k: Number | Tensor,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    *,
    capped: bool = False,
    **options: Any,
) -> Tensor:
    r"""K-hot weights: a differentiable mask of the ``k`` largest entries of ``x`` along ``dim``.

    Unlike :func:`torch.topk` this returns neither values nor indices but a weight for every entry, because
    the weights are what has a gradient. For indices take ``x.topk(k).indices``; for a hard mask that still
    trains, ``hard=True``.

    Args:
        x: scores, any floating shape. −inf means excluded, +inf surely selected.
        k: how many, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        method: the relaxation, by name (``khot.relaxations.registry.names()`` lists them) or as a
            :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        hard: exact hard top-k forward, the relaxation's gradient backward (k must be an integer).
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``x``, True where an entry may be selected.
        largest: False selects the smallest entries; then +inf means excluded and −inf surely selected.
        capped: project the weights of a method that may exceed 1 on the capped simplex.
        options: of the method, such as ``norm`` for ``"sparse"``.

    Returns:
        Weights in the shape and dtype of ``x``.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in topk(x, 2).tolist()]
        [0.859, 0.451, 0.691]
        >>> topk(x, 2, method="sparse", temperature=0.5).tolist()
        [1.0, 0.0, 1.0]
        >>> topk(x, 1, largest=False, hard=True).tolist()
        [0.0, 1.0, 0.0]
    """
    spec = method if isinstance(method, Relaxation) else get(method)
    checked_options("topk", spec, options)
    scores = x if largest else -x
    y = spec.weights(scores, k, temperature=temperature, dim=dim, mask=mask, hard=hard, **options)
    if not capped or spec.bounded or hard:
        return y
    return sparse_topk(y, k, dim=dim, mask=mask)


def topk_matrix(
    x: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    **options: Any,
) -> Tensor:
    r"""Soft one-hot rows, shape (…, k, n): row r is 'the r-th best' entry of ``x`` along ``dim``.

    Rows sum to 1 (those beyond the number of allowed entries are 0), and their sum are the weights of
    :func:`khot.topk` if more than k entries are allowed. A method of the threshold family has no rows of its
    own; there row r is what the r-th unit of budget adds, :math:`y(x; r) - y(x; r - 1)`, never negative.

    Args:
        x: scores, any floating shape. −inf means excluded, +inf surely selected.
        k: how many rows, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        hard: exact one-hot rows forward (ties by index), the relaxation's gradient backward.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``x``, True where an entry may be selected.
        largest: False ranks from the smallest; then +inf means excluded and −inf surely selected.
        options: of the method.

    Returns:
        Shape (…, k, n): ``x.shape`` without ``dim``, then rows, then the entries of ``dim``.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> topk_matrix(x, 2, method="softsort", temperature=0.1).argmax(-1)
        tensor([0, 2])
        >>> [[round(v, 2) for v in row] for row in topk_matrix(x, 2).tolist()]  # columns sum to topk(x, 2)
        [[0.55, 0.14, 0.31], [0.31, 0.31, 0.38]]
    """
    spec = method if isinstance(method, Relaxation) else get(method)
    checked_options("topk_matrix", spec, options, spec.matrix)
    last = position("topk_matrix", x, dim)
    budget("topk_matrix", x, k, last, integer=True)
    scores = x if largest else -x
    settings: dict[str, Any] = {"temperature": temperature, "mask": mask, **options}
    if spec.matrix is not None:
        rows = spec.matrix(scores, int(k), dim=dim, **settings)
    elif spec.real_k:
        rows = _increments(spec, scores, int(k), last, **settings)
    else:
        raise TypeError(f"topk_matrix: method {spec.name!r} gives weights alone, it has no rows")
    if not hard:
        return rows
    indices, exists = ranked_indices(allowed_scores("topk_matrix", scores, mask).movedim(last, -1), int(k))
    exact = torch.zeros_like(rows).scatter(-1, indices.unsqueeze(-1), exists.unsqueeze(-1).to(rows.dtype))
    return straight_through(rows, exact)


def topk_values(
    x: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    **options: Any,
) -> Tensor:
    r"""The ``k`` largest values of ``x`` along ``dim``, softly sorted: :func:`khot.topk_matrix` times ``x``.

    As the temperature → 0 these are ``torch.topk(x, k).values``, with a gradient in the other entries too.

    Args:
        x: values, any floating shape. −inf means excluded; +inf is not allowed where it has weight.
        k: how many, an integer.
        method: as in :func:`khot.topk_matrix`, like all that follow.
        temperature: > 0.
        hard: the exact values forward, the relaxation's gradient backward.
        dim: the dimension along which to select; the values are along it, best first.
        mask: boolean, broadcastable to ``x``, True where an entry may be selected.
        largest: False gives the smallest values, smallest first.
        options: of the method.

    Returns:
        Shape of ``x`` with k along ``dim``; 0 in places beyond the number of allowed entries.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 2) for v in topk_values(x, 2, method="softsort", temperature=0.1).tolist()]
        [3.0, 2.0]
    """
    rows = topk_matrix(x, k, method, temperature, hard, dim, mask, largest, **options)
    values = x.movedim(dim, -1)
    excluded = -math.inf if largest else math.inf
    values = torch.where(values == excluded, 0, values)  # its weight is 0, and 0 · inf is NaN
    return (rows @ values.unsqueeze(-1)).squeeze(-1).movedim(-1, dim)


def has_rows(spec: Relaxation) -> bool:
    """Whether :func:`topk_matrix` can be asked of it."""
    return spec.matrix is not None or spec.real_k


def checked_options(
    name: str, spec: Relaxation, options: Mapping[str, Any], function: Callable[..., Any] | None = None
) -> None:
    """Raise unless the method, or this function of it, has each of the options."""
    known = options_of(spec.weights if function is None else function)
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"its options: {', '.join(known)}" if known else "it has none"
        raise TypeError(f"{name}: method {spec.name!r} has no option {unknown[0]!r}; {has}")


def options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The options of an operator beyond those that all share."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _SHARED)


def _increments(
    spec: Relaxation,
    x: Tensor,
    k: int,
    last: int,
    temperature: Number | Tensor,
    mask: Tensor | None,
    **options: Any,
) -> Tensor:
    """y(r) − y(r − 1) for r = 1 … k, in one call with a budget for each row of the result."""
    rows = allowed_scores("topk_matrix", x, mask).movedim(last, -1)
    stacked = rows.unsqueeze(-2).expand(*rows.shape[:-1], k, rows.shape[-1])
    budgets = torch.arange(1, k + 1, dtype=torch.float64, device=x.device)
    if isinstance(temperature, Tensor):
        temperature = temperature.expand(rows.shape[:-1]).unsqueeze(-1)
    y = spec.weights(stacked, budgets.expand(stacked.shape[:-1]), temperature=temperature, **options)
    return torch.cat([y[..., :1, :], y.diff(dim=-2).clamp_min(0)], -2)
