"""Operators with one row per rank: what softsort, neuralsort and sorting networks share.

Row r is a distribution over the entries that says which is the r-th best; the weights are the sum of k rows.
This module checks the arguments and settles the entries that need no relaxation. It brings the others to one
form: finite scores in units of the temperature, relative to the k-th largest of their row.

Entries at +inf are the best: s of them share the rows 1 … s, and row r > s is row r − s of the others.
"""

from __future__ import annotations

import math
from ctypes import c_float
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    budget,
    check_count,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations._ranked_rows import RowsOf, WeightsOf
from khot.relaxations._settled import settle
from khot.relaxations._small_rows import SmallKernel, small_matrix, small_weights
from khot.relaxations._temperature import divided, within_range, without_overflow
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through

__all__ = [
    "OpenProblem",
    "attached",
    "open_problem",
    "relaxed_matrix",
    "relaxed_weights",
]

_TINY, _HUGE = 1e-10, 1e10


def relaxed_weights(
    name: str,
    weights_of: WeightsOf,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
    *,
    dtype: torch.dtype | None = None,
    anchored: bool = True,
    kernel: SmallKernel | None = None,
) -> Tensor:
    """The weights of the operator called ``name``.

    ``dtype`` overrides the usual dtype of computation. With ``anchored=False`` the scores are not shifted.
    The ``kernel``, if there is one, computes short rows.
    """
    last = position(name, scores, dim)
    scores = directed(name, scores, largest)
    check_switch(name, "hard", hard)
    if kernel is not None:

        def portable(x: Tensor) -> Tensor:
            return relaxed_weights(
                name, weights_of, x, k, temperature, dim, None, True, False, dtype=dtype, anchored=anchored
            )

        y = small_weights(kernel, scores, k, temperature, dim, mask, portable)
        if y is not None:
            return straight_through(y, hard_topk(scores, k, dim=dim)) if hard else y
    z = _ordinary(scores, k, temperature, last, mask, dtype) if anchored else None
    if z is not None:
        assert isinstance(k, int)
        y = weights_of(z, None, None, k).to(scores.dtype).movedim(-1, last)
        return straight_through(y, hard_topk(scores, k, dim=dim)) if hard else y
    k_rows = budget(name, scores, k, last, integer=True)
    rows, tau = _in_rows(name, scores, temperature, last, mask, dtype)
    settled, fixed, _, k_left, _ = settle(rows, k_rows)
    most = scores.shape[last] if isinstance(k, Tensor) else int(k)
    open_entries = ~settled
    z = _scaled(rows, tau, open_entries, most, anchored)
    soft = attached(weights_of(z, open_entries, k_left, most) if most else torch.zeros_like(z), z)
    y = torch.where(settled, fixed, soft).to(scores.dtype).movedim(-1, last)
    return straight_through(y, hard_topk(scores, k, dim=dim, mask=mask)) if hard else y


def relaxed_matrix(
    name: str,
    rows_of: RowsOf,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    *,
    dtype: torch.dtype | None = None,
    anchored: bool = True,
    first: int = 1,
    takes_none: bool = False,
    kernel: SmallKernel | None = None,
) -> Tensor:
    """Soft one-hot rows ``first`` … k (…, n); those beyond the number of allowed entries are 0.

    With ``takes_none``, ``rows_of`` gets None for the allowed entries where all of them are allowed. The
    ``kernel`` computes short rows that need no gradient.
    """
    last = position(name, scores, dim)
    k = check_count(name, scores, k, last)
    check_temperature(name, temperature)
    if kernel is not None and first == 1:
        matrix = small_matrix(kernel, scores, k, temperature, dim, mask)
        if matrix is not None:
            return matrix
    if anchored and takes_none:
        z = _ordinary_by_rows(name, scores, k, temperature, last, mask, dtype)
        if z is not None:
            return rows_of(z, None, torch.arange(first, k + 1, device=z.device)).to(scores.dtype)
    rows, tau = _in_rows(name, scores, temperature, last, mask, dtype)
    surely, excluded = rows == math.inf, rows == -math.inf
    n_surely = surely.sum(-1, keepdim=True)
    n_allowed = scores.shape[last] - excluded.sum(-1, keepdim=True)
    finite = ~(surely | excluded)
    row = torch.arange(first, k + 1, device=scores.device)
    z = _scaled(rows, tau, finite, k, anchored)
    if row.numel() == 0 or rows.shape[-1] == 0:
        return attached(z.new_zeros(*z.shape[:-1], row.numel(), z.shape[-1]), z).to(scores.dtype)
    matrix = attached(rows_of(z, finite, row - n_surely), z)
    shared = (surely.to(matrix.dtype) / n_surely.clamp_min(1)).unsqueeze(-2)
    matrix = torch.where((row <= n_surely).unsqueeze(-1), shared, matrix)
    return torch.where((row <= n_allowed).unsqueeze(-1), matrix, 0).to(scores.dtype)


def attached(result: Tensor, z: Tensor) -> Tensor:
    """The result, connected to the graph of the scores even if it does not depend on them.

    So a backward pass always works; it gives 0 where there was nothing to decide.
    """
    if result.requires_grad or not z.requires_grad:
        return result
    nothing = (0 * z.clamp(-1, 1)).sum(-1)  # clamped: 0 · inf is NaN
    return result + nothing.view(*nothing.shape, *(1,) * (result.dim() - nothing.dim()))


class OpenProblem(NamedTuple):
    """A checked problem whose selected dimension is last; shapes (…, n), and (…, 1) for the number.

    ``z`` are the scores in units of the temperature where they are ``finite``; ``n_surely`` is how many are
    at +inf. Where ``settled``, the weight is ``fixed``.
    """

    z: Tensor
    finite: Tensor
    n_surely: Tensor
    settled: Tensor
    fixed: Tensor


def open_problem(
    name: str,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    mask: Tensor | None,
    *,
    anchored: bool = True,
) -> OpenProblem:
    """The checked problem, for an operator that selects along the last dimension by itself."""
    last = position(name, scores, -1)
    k_rows = budget(name, scores, check_count(name, scores, k, last), last)
    rows, tau = _in_rows(name, scores, temperature, last, mask, None)
    settled, fixed, _, _, _ = settle(rows, k_rows)
    surely = rows == math.inf
    finite = ~(surely | (rows == -math.inf))
    z = _scaled(rows, tau, finite, int(k), anchored)
    return OpenProblem(z, finite, surely.sum(-1, keepdim=True), settled, fixed)


def _ordinary(
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    last: int,
    mask: Tensor | None,
    dtype: torch.dtype | None,
) -> Tensor | None:
    """What `_scaled` gives, in few operations, where nothing is to be settled; None elsewhere.

    That is so in most calls: plain scores, all finite and none huge, no mask, and numbers for k and τ. A
    small call costs what its operations cost to start, and settling takes more of them than most operators.
    """
    if mask is not None or type(k) is not int or type(temperature) is not float or not is_plain(scores):
        return None
    if not (0 < k < scores.shape[last] and _TINY < temperature < _HUGE):
        return None
    rows = scores.to(dtype or compute_dtype(scores)).movedim(last, -1)
    tau = temperature if compute_dtype(scores) == torch.float64 else c_float(temperature).value  # as a tensor
    return _beside_the_kth(rows, tau, k)


def _ordinary_by_rows(
    name: str,
    scores: Tensor,
    k: int,
    temperature: Number | Tensor,
    last: int,
    mask: Tensor | None,
    dtype: torch.dtype | None,
) -> Tensor | None:
    """The same where the temperature may be a tensor."""
    if not isinstance(temperature, Tensor):
        return _ordinary(scores, k, temperature, last, mask, dtype)
    if mask is not None or not is_plain(scores, temperature) or not 0 < k < scores.shape[last]:
        return None
    low, high = temperature.detach().aminmax()
    if not (low.item() > _TINY and high.item() < _HUGE):
        return None
    rows = scores.to(dtype or compute_dtype(scores)).movedim(last, -1)
    tau = per_row(name, "temperature", scores, temperature, last)
    return _beside_the_kth(rows, tau.to(rows.dtype), k)


def _beside_the_kth(rows: Tensor, tau: Tensor | float, k: int) -> Tensor | None:
    """Scores in units of τ beside the k-th largest; None if one of them is not finite, or huge."""
    least, most = rows.detach().aminmax()
    if not (least.item() > -_HUGE and most.item() < _HUGE):  # NaN is not
        return None
    best = hard_topk(rows.detach(), k) > 0
    return (rows - torch.where(best, rows.detach(), math.inf).amin(-1, keepdim=True)) / tau


def _in_rows(
    name: str,
    scores: Tensor,
    temperature: Number | Tensor,
    last: int,
    mask: Tensor | None,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """Scores (…, n) and temperatures (…, 1)."""
    check_temperature(name, temperature)
    tau = per_row(name, "temperature", scores, within_range(temperature, compute_dtype(scores)), last)
    rows = allowed_scores(name, scores, mask).to(dtype or compute_dtype(scores)).movedim(last, -1)
    return rows, tau.to(rows.dtype)


def _scaled(rows: Tensor, tau: Tensor, part: Tensor, k: int, anchored: bool) -> Tensor:
    """(x − a)/τ of the entries in ``part``, 0 elsewhere; a is one of the scores around which it is decided.

    Relative to it these keep their digits beside scores of any size. A difference of two does not overflow.
    """
    if rows.shape[-1] == 0:
        return rows
    tau = without_overflow(tau, rows)
    if not anchored:
        return divided(torch.where(part, rows, 0), tau)
    best = hard_topk(torch.where(part, rows, -math.inf).detach(), max(k, 1)) > 0
    anchor = torch.where(best, rows.detach(), math.inf).amin(-1, keepdim=True)
    halves = torch.where(part, rows / 2 - torch.where(anchor == math.inf, 0, anchor) / 2, 0)
    return divided(halves, tau / 2)
