"""One call for every relaxation: k-hot weights, soft one-hot rows, and soft top-k values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    at_most_all,
    check_count,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._capped import capped_weights
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["checked_options", "has_rows", "options_of", "topk", "topk_matrix", "topk_values"]

_SHARED = ("temperature", "dim", "mask", "hard", "largest")
_MEANT = {
    **dict.fromkeys(("tau", "temp", "T", "epsilon"), "temperature"),
    "axis": "dim",
    "descending": "largest",
    "straight_through": "hard",
    "rng": "generator",
}


def topk(
    scores: Tensor,
    k: Number | Tensor,
    method: str | Relaxation = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    at_most: bool = False,
    capped: bool = False,
    **options: Any,
) -> Tensor:
    r"""K-hot weights: a differentiable mask of the ``k`` largest ``scores`` along ``dim``.

    Unlike :func:`torch.topk`, this returns a weight for every entry instead of values and indices, because
    the weights are what has a gradient. For indices, use ``x.topk(k).indices``. For a hard mask that can
    still be trained, use ``hard=True``.

    The default temperature, 1, is too soft for ordinary scores: ``topk(torch.randn(784), 10)`` puts only
    about a tenth of the weight on the top 10. ``khot.calibrate_temperature(scores, k, weight_on_topk=0.9)``
    finds one that fits. The 'Units' line of each operator says what its temperature divides.

    Cost: that of the method; O(n) for the default, ``"sigmoid"``.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: how many entries to select, a number or a tensor that broadcasts to ``scores.shape`` without
            ``dim``. Some methods accept any real number.
        method: the relaxation, by name (``khot.relaxations.names()`` lists them) or as a
            :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        hard: exact hard top-k forward, the relaxation's gradient backward (k must be an integer).
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        at_most: accept a ``k`` above n, and select all entries.
        capped: project the weights on the capped simplex, for methods whose weights may exceed 1.
        options: further options of the method, such as ``norm`` for ``"sparse"``.

    Returns:
        Weights in the shape and dtype of ``scores``.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in topk(x, 2).tolist()]
        [0.859, 0.451, 0.691]
        >>> topk(x, 2, method="sparse", temperature=0.5).tolist()
        [1.0, 0.0, 1.0]
        >>> topk(x, 1, largest=False, hard=True).tolist()
        [0.0, 1.0, 0.0]
    """
    name = "topk"
    spec = get(method, name)
    checked_options(name, spec, options)
    check_switch(name, "hard", hard)
    check_switch(name, "at_most", at_most)
    check_switch(name, "capped", capped)
    if at_most:
        k = at_most_all(name, scores, k, position(name, scores, dim))
    scores = directed(name, scores, largest)
    over = capped and not spec.bounded
    y = spec.weights(
        scores, k, temperature=temperature, dim=dim, mask=mask, hard=hard and not over, **options
    )
    return capped_weights(y, scores, k, dim=dim, mask=mask, hard=hard) if over else y


def topk_matrix(
    scores: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    **options: Any,
) -> Tensor:
    r"""Soft one-hot rows, shape (…, k, n): row r selects the r-th best entry of ``scores`` along ``dim``.

    Each row sums to 1; rows beyond the number of allowed entries are 0. If more than k entries are allowed,
    the rows add up to the weights of :func:`khot.topk`; those of ``"sinkhorn"`` to its weights with
    ``variant="sorted"``. Methods of the threshold family have no rows of their own. For them, row r is what
    the r-th unit of budget adds, :math:`y(x; r) - y(x; r - 1)`, which is never negative. The noisy methods,
    ``"gumbel"`` and ``"perturbed"``, have no rows.

    Cost: that of the method, and O(kn) memory for the result; k calls of the method in the threshold family.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: how many rows, an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: exact one-hot rows forward (ties by index), the relaxation's gradient backward.
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False ranks the smallest first; then +inf is never selected and −inf always.
        options: further options of the method.

    Returns:
        Shape (…, k, n): ``scores.shape`` without ``dim``, then rows, then the entries of ``dim``.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> topk_matrix(x, 2, method="softsort", temperature=0.1).argmax(-1)
        tensor([0, 2])
        >>> [[round(v, 2) for v in row] for row in topk_matrix(x, 2).tolist()]  # columns sum to topk(x, 2)
        [[0.55, 0.14, 0.31], [0.31, 0.31, 0.38]]
    """
    return _rows("topk_matrix", scores, k, method, temperature, hard, dim, mask, largest, options).to(
        scores.dtype
    )


def topk_values(
    scores: Tensor,
    k: int,
    method: str | Relaxation = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    **options: Any,
) -> Tensor:
    r"""The ``k`` largest ``scores`` along ``dim``, softly sorted: :func:`khot.topk_matrix` times the scores.

    As the temperature → 0 the result becomes ``torch.topk(x, k).values``. Its gradient reaches all entries.

    Cost: that of :func:`khot.topk_matrix`.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected; +inf is a value like others,
            without a gradient.
        k: how many, an integer.
        method: the relaxation, as in :func:`khot.topk_matrix`.
        temperature: > 0, a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
        hard: the exact values forward, the relaxation's gradient backward.
        dim: the dimension along which to select; the values are along it, best first.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.
        largest: False gives the smallest values, smallest first.
        options: further options of the method.

    Returns:
        Shape of ``scores`` with k along ``dim``; 0 in places beyond the number of allowed entries.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 2) for v in topk_values(x, 2, method="softsort", temperature=0.1).tolist()]
        [3.0, 2.0]
    """
    name = "topk_values"
    rows = _rows(name, scores, k, method, temperature, hard, dim, mask, largest, options)
    allowed = allowed_scores(name, directed(name, scores, largest), mask)
    # What is excluded may be anything, and what is infinite has weight 0 in other rows: 0 · inf is NaN.
    infinite = allowed == math.inf
    finite = torch.where(infinite | (allowed == -math.inf), 0, scores)
    columns = torch.stack([finite.movedim(dim, -1), infinite.movedim(dim, -1)], -1)
    sums = rows @ columns.to(rows.dtype)
    values = torch.where(sums[..., 1] > 0, math.inf if largest else -math.inf, sums[..., 0])
    return values.to(scores.dtype).movedim(-1, dim)


def _rows(
    name: str,
    scores: Tensor,
    k: int,
    method: str | Relaxation,
    temperature: Number | Tensor,
    hard: bool,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    options: Mapping[str, Any],
) -> Tensor:
    """Soft one-hot rows (…, k, n); those of the threshold family in the dtype of computation."""
    spec = get(method, name)
    if not has_rows(spec):
        raise TypeError(f"{name}: method {spec.name!r} gives weights alone, it has no rows")
    checked_options(name, spec, options, spec.matrix)
    check_switch(name, "hard", hard)
    last = position(name, scores, dim)
    k = check_count(name, scores, k, last)
    scores = directed(name, scores, largest)
    if spec.matrix is not None:
        rows = spec.matrix(scores, k, dim=dim, temperature=temperature, mask=mask, **options)
    else:
        rows = _increments(name, spec, scores, k, last, temperature, mask, **options)
    if not hard:
        return rows
    indices, exists = ranked_indices(allowed_scores(name, scores, mask).movedim(last, -1), k)
    exact = torch.zeros_like(rows).scatter(-1, indices.unsqueeze(-1), exists.unsqueeze(-1).to(rows.dtype))
    return straight_through(rows, exact)


def has_rows(spec: Relaxation) -> bool:
    """Whether :func:`topk_matrix` works with this method."""
    return spec.matrix is not None or spec.real_k


def checked_options(
    name: str, spec: Relaxation, options: Mapping[str, Any], function: Callable[..., Any] | None = None
) -> None:
    """Raise unless the method (or this function of it) accepts each of the options."""
    if not options:
        return
    known = options_of(spec.weights if function is None else function)
    for option in options:
        if option not in known:
            meant = _MEANT.get(option)
            hint = f"; did you mean {meant!r}?" if meant else f"; its options: {', '.join(known) or 'none'}"
            raise TypeError(f"{name}: method {spec.name!r} has no option {option!r}{hint}")


def options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The options of an operator beyond the shared arguments."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _SHARED)


def _increments(
    name: str,
    spec: Relaxation,
    scores: Tensor,
    k: int,
    last: int,
    temperature: Number | Tensor,
    mask: Tensor | None,
    **options: Any,
) -> Tensor:
    """y(r) − y(r − 1) for r = 1 … k, in one call with a budget for each row of the result.

    In the dtype of computation: differences of weights rounded to a half type would have no digits.
    """
    rows = allowed_scores(name, scores, mask).movedim(last, -1).to(compute_dtype(scores))
    stacked = rows.unsqueeze(-2).expand(*rows.shape[:-1], k, rows.shape[-1])
    budgets = torch.arange(1, k + 1, dtype=torch.float64, device=scores.device)
    if isinstance(temperature, Tensor):
        check_temperature(name, temperature)  # before it is expanded, perhaps to no rows
        temperature = per_row(name, "temperature", scores, temperature, last)
    y = spec.weights(stacked, budgets.expand(stacked.shape[:-1]), temperature=temperature, **options)
    return torch.cat([y[..., :1, :], y.diff(dim=-2).clamp_min(0)], -2)
