"""Iterative top-k: k times a softmax around the largest score, which is removed after each.

    M[r, j] = softmax_j (−(x_j − x_[r])²/τ)  over the entries of rank r and below,      y = Σ_{r ≤ k} M[r]

with x_[r] the r-th largest. As printed by Pietruszka et al. (2021, Algorithm 1), the softmax subtracts the
largest term from its denominator: rows then sum to more than one, and 0/0 is possible. This form is kept as
``variant="as-printed"`` to reproduce the paper; the default is the usual softmax.

Rows sum to one; a column may sum to more, so weights may exceed 1. Cost: a sort and O(kn) work (a selection
of vectors of length d: O(knd)), O(n) memory beyond a block of rows. References: Goyal, Neubig, Dyer &
Berg-Kirkpatrick (2018); Pietruszka, Borchmann & Graliński (2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from khot.kernels.sorting import argsort, unsorted
from khot.relaxations._arguments import Number, check_temperature
from khot.relaxations._plain_arguments import check_choice
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, rows_of, softmax_rows, weights_of, where_allowed
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations.registry import Relaxation, register

__all__ = ["Variant", "iterative_matrix", "iterative_topk"]

Variant = Literal["corrected", "as-printed"]
_VARIANTS = get_args(Variant)


def iterative_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    variant: Variant = "corrected",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by one softmax after another.

    .. math:: y_j = \sum_{r=1}^k \operatorname{softmax}_j\big(-(x_j - x_{[r]})^2/\tau\big)

    where the r-th softmax runs over the entries that remain when the r − 1 largest are removed. Weights may
    exceed 1 (``khot.topk(…, capped=True)`` projects them).

    Units: the temperature divides *squared* differences of scores: if you scale the scores by a, scale τ by
    a². Cost: a sort and O(kn) work, O(n) memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, in units of a *squared* score; a number or a tensor like ``k``.
        variant: ``"corrected"``, or ``"as-printed"`` (rows do not sum to one and may be infinite).
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in iterative_topk(x, 2, temperature=0.5).tolist()]
        [0.881, 0.119, 1.0]

    Reference: Goyal, Neubig, Dyer & Berg-Kirkpatrick (2018), A Continuous Relaxation of Beam Search;
    Pietruszka, Borchmann & Graliński (2021), Algorithm 1.
    """
    name = "iterative_topk"
    check_choice(name, "variant", variant, _VARIANTS)
    tau = _root(name, temperature)
    return relaxed_weights(
        name,
        weights_of(_logits, _normalisers[variant]),
        scores,
        k,
        tau,
        dim,
        mask,
        largest,
        hard,
        kernel=SmallKernel("iterative") if variant == "corrected" else None,
    )


def iterative_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    variant: Variant = "corrected",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `iterative_topk`, shape (…, k, n) with the entries of ``dim`` last: row r is the r-th best.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    name = "iterative_matrix"
    check_choice(name, "variant", variant, _VARIANTS)
    tau = _root(name, temperature)
    rows = rows_of(_logits, _normalisers[variant])
    return relaxed_matrix(name, rows, scores, k, tau, dim, mask, takes_none=True)


def _root(name: str, temperature: Number | Tensor) -> Number | Tensor:
    """√τ, in units of which the differences are squared."""
    check_temperature(name, temperature)
    return temperature.sqrt() if isinstance(temperature, Tensor) else math.sqrt(temperature)


def _logits(z: Tensor, allowed: Allowed) -> Callable[[Tensor], Tensor]:
    order = argsort(where_allowed(allowed, z.detach(), -torch.inf), descending=True)[1]
    place = torch.arange(z.shape[-1], device=z.device).expand(z.shape)
    place_of = unsorted(place, order).unsqueeze(-2)
    count = None if allowed is None else allowed.sum(-1, keepdim=True).clamp_min(1)

    def logits(ranks: Tensor) -> Tensor:
        existing = ranks if count is None else torch.minimum(ranks.clamp_min(1), count)
        places = (existing - 1).expand(*z.shape[:-1], -1)
        best = z.gather(-1, order.gather(-1, places))
        distances = best.unsqueeze(-1) - z.unsqueeze(-2)
        return torch.where(place_of < places.unsqueeze(-1), -torch.inf, -distances * distances)

    return logits


def _as_printed(logits: Tensor, allowed: Allowed) -> Tensor:
    """PEAKEDSOFTMAX: the largest term, which is one, is subtracted from the denominator."""
    terms = where_allowed(None if allowed is None else allowed.unsqueeze(-2), logits, -torch.inf).exp()
    return terms / (terms.sum(-1, keepdim=True) - 1)


_normalisers = {"corrected": softmax_rows, "as-printed": _as_printed}

SPEC = register(
    Relaxation(
        name="iterative",
        weights=iterative_topk,
        matrix=iterative_matrix,
        bounded=False,
        keeps_order=False,
        ties_share=False,
        smooth="piecewise",
        max_n=10_000,
        max_k=8,
        reference="Goyal et al. (2018); Pietruszka et al. (2021)",
    )
)
