"""Soft one-hot rows of any relaxation, 'the r-th best' for r = 1 … k, and soft values by them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from khot.kernels.sorting import argsort
from khot.relaxations.arguments import Number, allowed_scores, budget, position
from khot.relaxations.facade import checked_options
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["has_rows", "ranked_indices", "topk_matrix", "topk_values"]


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


def ranked_indices(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Indices (…, k) of the k largest of each row, best first and ties by index, and which of them exist.

    Excluded entries (−inf) are never among those that exist.
    """
    order = argsort(rows.detach(), descending=True)[1][..., :k]
    allowed = (rows != -math.inf).sum(-1, keepdim=True)
    return order, torch.arange(k, device=rows.device) < allowed


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
