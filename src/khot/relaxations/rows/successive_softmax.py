"""Successive softmax: sampling without replacement, with every draw replaced by its probabilities.

    α₁ = x,    p_r = softmax(α_r/τ),    α_{r+1} = α_r + log(1 − p_r),      y = Σ_{r ≤ k} p_r

An entry drawn with probability p keeps a share of 1 − p. The logarithm is computed without cancellation: at
the largest entry, where 1 − p may be 0 in floating point, it is the difference of two logsumexps.

Between scores that are tied the slopes grow by 1/τ with every draw, beyond all numbers. What a draw passes
back to the ones before it is limited to ±1e30, so the gradient is finite.

Each draw sums to one. A column may sum to more (up to k, at temperatures above 1), so weights may exceed 1;
``capped=True`` projects them on the capped simplex. Cost: O(kn) work and memory. References: Plötz & Roth
(2018), Neural Nearest Neighbors Networks; Xie & Ermon (2019), Reparameterizable Subset Sampling via
Continuous Relaxations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from khot.kernels.availability import inside_forward_mode
from khot.relaxations._arguments import (
    Number,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._capped import capped_weights
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, in_full
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations._temperature import inverse, within_range
from khot.relaxations._whole import whole
from khot.relaxations.registry import Relaxation, register

__all__ = ["successive_softmax_matrix", "successive_softmax_topk"]

_STEEPEST = 1e30  # slopes, as in csrc/small_softmaxes.h


def successive_softmax_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    capped: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by draws without replacement.

    .. math:: y = \sum_{r=1}^k p_r, \qquad p_r = \operatorname{softmax}(\alpha_r/\tau), \qquad
              \alpha_{r+1} = \alpha_r + \log(1 - p_r), \qquad \alpha_1 = x

    Each draw takes the probabilities of a softmax, and an entry drawn with probability p keeps a share of
    1 − p for the next draws. Weights may exceed 1.

    Units: the temperature divides the scores and the logarithms that are added to them. Cost: O(kn) work and
    memory. Gradients: between tied scores they grow like :math:`\tau^{-k}`, and stop at ±1e30.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, a number or a tensor like ``k``.
        capped: project the weights, which may exceed 1, on the capped simplex.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in successive_softmax_topk(x, 2).tolist()]
        [1.12, 0.257, 0.622]
        >>> [round(v, 3) for v in successive_softmax_topk(x, 2, capped=True).tolist()]
        [1.0, 0.318, 0.682]

    Reference: Plötz & Roth (2018), Neural Nearest Neighbors Networks; Xie & Ermon (2019), Reparameterizable
    Subset Sampling via Continuous Relaxations.
    """
    name = "successive_softmax_topk"
    check_temperature(name, temperature)
    check_switch(name, "hard", hard)
    check_switch(name, "capped", capped)

    def weights_of(z: Tensor, allowed: Allowed, budgets: Tensor | None, most: int) -> Tensor:
        tau = _per_row(name, scores, temperature, dim)
        allowed, budgets = in_full(z, allowed, budgets, most)
        return _all_draws(z, allowed, budgets, most, tau)

    y = relaxed_weights(
        name,
        weights_of,
        scores,
        k,
        temperature,
        dim,
        mask,
        largest,
        hard and not capped,
        kernel=SmallKernel("successive_softmax"),
    )
    if not capped:
        return y
    return capped_weights(y, directed(name, scores, largest), k, dim=dim, mask=mask, hard=hard)


def successive_softmax_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The draws of `successive_softmax_topk`, shape (…, k, n) with the entries of ``dim`` last.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    name = "successive_softmax_matrix"
    tau = _per_row(name, scores, temperature, dim)

    def rows_of(z: Tensor, allowed: Tensor, ranks: Tensor) -> Tensor:
        draws = torch.stack(list(_draws(z, allowed, tau, ranks.shape[-1])), -2)
        places = (ranks - 1).clamp(0).expand(*z.shape[:-1], -1)
        return draws.gather(-2, places.unsqueeze(-1).expand(draws.shape))

    return relaxed_matrix(name, rows_of, scores, k, temperature, dim, mask)


def _per_row(name: str, x: Tensor, temperature: Number | Tensor, dim: int) -> Tensor:
    last = position(name, x, dim)
    check_temperature(name, temperature)
    return per_row(name, "temperature", x, within_range(temperature, compute_dtype(x)), last)


def _draws(z: Tensor, allowed: Tensor, tau: Tensor, count: int) -> Iterator[Tensor]:
    """The first ``count`` draws (…, n) of scores in units of τ (…, 1).

    They are over all entries, for want of a number, where none are allowed.
    """
    by_score = inverse(tau)
    takes_part = allowed | ~allowed.any(-1, keepdim=True)
    lowest = torch.finfo(z.dtype).min / 8
    if count > 1:
        z = _limited(z, tau)
    for left in reversed(range(count)):
        alpha = torch.where(takes_part, z, -math.inf)
        draw = torch.softmax(alpha, -1)
        yield draw
        if left:
            z = _limited(_left_over(alpha, draw, by_score).clamp_min(lowest), tau)


def _limited(z: Tensor, tau: Tensor) -> Tensor:
    """z; the gradient in τz goes back to it as far as ±1e30. Forward mode and traced graphs have no limit."""
    if torch.compiler.is_compiling() or inside_forward_mode():
        return z
    return cast("Tensor", _Limited.apply(z, tau.detach()))  # pyright: ignore[reportUnknownMemberType]


class _Limited(torch.autograd.Function):
    """(z, τ) → z."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, tau: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (tau,) = ctx.saved_tensors
        return torch.minimum(torch.maximum(grads[0], -_STEEPEST * tau), _STEEPEST * tau), None


def _sum_of_draws(z: Tensor, allowed: Tensor, budgets: Tensor, most: int, tau: Tensor) -> Tensor:
    total = torch.zeros_like(z)
    for r, draw in enumerate(_draws(z, allowed, tau, most), 1):
        total = total + torch.where(r <= budgets, draw, 0)
    return total


_all_draws = whole("successive_softmax", _sum_of_draws)


def _left_over(alpha: Tensor, p: Tensor, by_score: Tensor) -> Tensor:
    """α + log(1 − p)/τ, with its digits also where p is nearly 1; −inf where α is.

    At the largest entry log(1 − p) = o − log(eᵒ + e^α) with o the logsumexp of the others, and α + log(1 − p)
    is o − log(1 + e^{o − α}): written so, a score far above the others does not cost them their digits.
    """
    largest = alpha.detach().argmax(-1, keepdim=True)
    others = alpha.scatter(-1, largest, -math.inf)
    alone = others.detach().amax(-1, keepdim=True) == -math.inf  # one entry: it is drawn again and again
    of_others = torch.where(alone, 0, others).logsumexp(-1, keepdim=True)
    top = alpha.gather(-1, largest)
    warm = by_score < 4  # else 1/τ rules the sum, and may be too large for this form of it
    share = torch.where(warm, by_score, 1)
    rest = of_others - torch.logaddexp(of_others - top, torch.zeros_like(top))
    log_rest = -torch.logaddexp(top - of_others, torch.zeros_like(top))
    at_largest = torch.where(warm, top * (1 - share) + rest * share, top + log_rest * by_score)
    at_largest = torch.where(alone, top, at_largest)
    finite = alpha != -math.inf
    elsewhere = torch.where(finite, alpha, 0) + torch.log1p(-p.scatter(-1, largest, 0)) * by_score
    return torch.where(finite, elsewhere, 0).scatter(-1, largest, at_largest)


SPEC = register(
    Relaxation(
        name="successive_softmax",
        weights=successive_softmax_topk,
        matrix=successive_softmax_matrix,
        bounded=False,
        keeps_order=False,
        smooth="C∞",
        max_n=100_000,
        max_k=8,
        reference="Plötz & Roth (2018); Xie & Ermon (2019)",
    )
)
