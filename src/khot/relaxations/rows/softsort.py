"""Softsort top-k: distances to the r-th largest score.

    M[r, j] = softmax_j (−|x_[r] − x_j|/τ),      x_[1] ≥ x_[2] ≥ …,      y = Σ_{r ≤ k} M[r]

Rows sum to one; a column may sum to more than one, so weights may exceed 1. Only k of the n rows are
computed. Cost: a sort, O(kn) work, and O(n) memory beyond a block of rows. Reference: Prillo &
Eisenschlos (2020).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from khot.kernels.sorting import argsort
from khot.relaxations._arguments import Number
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, rows_of, weights_of, where_allowed
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations.registry import Relaxation, register

__all__ = ["softsort_matrix", "softsort_topk"]


def softsort_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by distances to them.

    .. math:: y_j = \sum_{r=1}^k \operatorname{softmax}_j\big(-|x_{[r]} - x_j|/\tau\big)

    with :math:`x_{[r]}` the r-th largest score. Weights may exceed 1 (``khot.topk(…, capped=True)`` projects
    them).

    Units: the temperature divides differences of scores. Cost: a sort and O(kn) work, O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, a number or a tensor like ``k``.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in softsort_topk(x, 2, temperature=0.5).tolist()]
        [0.973, 0.122, 0.904]

    Reference: Prillo & Eisenschlos (2020), SoftSort: A Continuous Relaxation for the argsort Operator.
    """
    return relaxed_weights(
        "softsort_topk",
        weights_of(_logits),
        scores,
        k,
        temperature,
        dim,
        mask,
        largest,
        hard,
        kernel=SmallKernel("softsort"),
    )


def softsort_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `softsort_topk`, shape (…, k, n) with the entries of ``dim`` last: row r is the r-th best.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    return relaxed_matrix(
        "softsort_matrix",
        rows_of(_logits),
        scores,
        k,
        temperature,
        dim,
        mask,
        takes_none=True,
        kernel=SmallKernel("softsort"),
    )


def _logits(z: Tensor, allowed: Allowed) -> Callable[[Tensor], Tensor]:
    order = argsort(where_allowed(allowed, z.detach(), -torch.inf), descending=True)[1]

    def logits(ranks: Tensor) -> Tensor:
        places = (ranks - 1).clamp(0, max(z.shape[-1] - 1, 0)).expand(*z.shape[:-1], -1)
        best = z.gather(-1, order.gather(-1, places))
        return -(best.unsqueeze(-1) - z.unsqueeze(-2)).abs()

    return logits


SPEC = register(
    Relaxation(
        name="softsort",
        weights=softsort_topk,
        matrix=softsort_matrix,
        bounded=False,
        keeps_order=False,
        smooth="C⁰",
        max_n=10_000,
        max_k=8,
        reference="Prillo & Eisenschlos (2020)",
    )
)
