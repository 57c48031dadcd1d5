"""Top-k with any CDF as gate: the threshold family for a user-defined F.

    yᵢ = F((xᵢ + c)/τ),   c such that Σy = k.

Cost: a partial sort, a numerical quantile for each row, and up to 40 passes over it (70 in float64), in torch
operations.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import UserGate

__all__ = ["cdf_topk"]


def cdf_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    cdf: Callable[[Tensor], Tensor],
    density: Callable[[Tensor], Tensor] | None = None,
    survival: Callable[[Tensor], Tensor] | None = None,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, with any CDF as gate.

    .. math:: y_i = F\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    Units: the temperature divides the scores. Cost: a partial sort and up to 40 passes over the row (70 in
    float64), in torch operations.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n, any real number, or a tensor that broadcasts to
            ``scores.shape`` without ``dim``.
        cdf: F, elementwise from torch operations, non-decreasing from 0 to 1, finite at ±1e18.
        density: F′, elementwise; by default the derivative of ``cdf`` by autograd.
        survival: 1 − F, elementwise; by default computed as that difference. Pass it if F has a light upper
            tail and the digits of weights near 1 matter; for a symmetric F it is ``lambda a: cdf(-a)``.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> cauchy = lambda a: 0.5 + torch.atan(a) / torch.pi
        >>> y = cdf_topk(torch.tensor([3.0, 1.0, 2.0]), 2, cdf=cauchy)
        >>> [round(v, 3) for v in y.tolist()]
        [0.84, 0.442, 0.718]

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot, for the family.
    """
    for argument, function in (("cdf", cdf), ("density", density), ("survival", survival)):
        if not (callable(function) or (function is None and argument != "cdf")):
            raise TypeError(f"cdf_topk: {argument} must be a function, got {type(function).__name__}")
    return gated_topk(
        "cdf_topk", UserGate(cdf, density, survival), scores, k, temperature, dim, mask, largest, hard
    )
