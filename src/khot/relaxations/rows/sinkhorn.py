"""Sinkhorn top-k: entropic optimal transport of the scores to the anchors 0 and 1 (SOFT top-k).

    Γ = argmin Σ Γ_ia (xᵢ − a)² + ε Σ Γ_ia log Γ_ia,    Σ_a Γ_ia = 1/n,    Σᵢ Γ_i1 = k/n,    y = n Γ_·1

Between the two anchors entry i has the log-odds (xᵢ² − (xᵢ − 1)²)/ε + const = 2xᵢ/ε + const, where the
constant makes Σy = k. This is exactly sigmoid top-k at the temperature ε/2, and is computed that way;
Sinkhorn's alternate scaling has not converged after 2·10⁵ iterations at ε = 0.01.

The sorted variant has the anchors 0, 1, …, k: one for each rank and one for the rest. It has a row for each
rank; see ``_sorted_transport.py``. Cost: that of sigmoid top-k; for the sorted variant a sort, O(nk) memory,
and O(nk²) work in each of 3–15 steps. Reference: Xie et al. (2020).
"""

from __future__ import annotations

import sys
from typing import Literal, get_args

import torch
from torch import Tensor

from khot.relaxations._arguments import Number, check_temperature, compute_dtype, position
from khot.relaxations._plain_arguments import check_choice
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.rows._sorted_transport import transport_rows, transport_weights
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LOGISTIC

__all__ = ["Variant", "sinkhorn_matrix", "sinkhorn_topk"]

Variant = Literal["plain", "sorted"]
_VARIANTS = get_args(Variant)


def sinkhorn_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    variant: Variant = "plain",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by entropic optimal transport.

    .. math:: \min_\Gamma \sum_{i,a} \Gamma_{ia} (x_i - a)^2 +
              \varepsilon \sum_{i,a} \Gamma_{ia} \log \Gamma_{ia}, \qquad y_i = n\, \Gamma_{i1}

    from n entries of mass 1/n each to the anchors 0 and 1; anchor 1 takes k/n. The result equals
    ``sigmoid_topk(x, k, temperature=ε/2)`` and is computed that way.

    Units: the temperature is ε, which divides *twice* the scores: as sharp as ``sigmoid_topk`` at τ = ε/2.
    Cost: O(n); with ``variant="sorted"``, O(nk) memory and O(nk²) work in each of 3–15 steps.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n; a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
            It need not be an integer, except with ``variant="sorted"`` (where a tensor is rounded).
        temperature: ε > 0, a number or a tensor like ``k``. The costs are not normalised.
        variant: ``"plain"``, or ``"sorted"`` with the anchors 0, 1, …, k, where y is the mass that does not
            go to anchor 0. The sorted variant is meant for small k: it takes O(nk) memory.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in sinkhorn_topk(x, 2, temperature=2.0).tolist()]
        [0.859, 0.451, 0.691]
        >>> [round(v, 3) for v in sinkhorn_topk(x, 2, temperature=2.0, variant="sorted").tolist()]
        [0.917, 0.384, 0.699]

    Reference: Xie et al. (2020), Differentiable Top-k with Optimal Transport.
    """
    name = "sinkhorn_topk"
    check_choice(name, "variant", variant, _VARIANTS)
    tau = _halved(name, scores, temperature, dim)
    if variant == "plain":
        return gated_topk(name, LOGISTIC, scores, k, tau, dim, mask, largest, hard)
    return relaxed_weights(
        name, transport_weights, scores, k, tau, dim, mask, largest, hard, dtype=torch.float64
    )


def sinkhorn_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `sinkhorn_topk` with ``variant="sorted"``, shape (…, k, n), the entries of ``dim`` last.

    Row r is the r-th best and sums to 1, a column sums to at most 1; rows beyond the number of allowed
    entries are 0. The arguments are the same; k is an integer.
    """
    name = "sinkhorn_matrix"
    tau = _halved(name, scores, temperature, dim)
    return relaxed_matrix(name, transport_rows, scores, k, tau, dim, mask, dtype=torch.float64)


def _halved(name: str, x: Tensor, temperature: Number | Tensor, dim: int) -> Number | Tensor:
    """ε/2, not below what is a normal number."""
    position(name, x, dim)
    check_temperature(name, temperature)
    if not isinstance(temperature, Tensor):
        return max(temperature / 2, sys.float_info.min) if type(temperature) is float else temperature / 2
    dtype = compute_dtype(x)
    return (temperature.to(dtype) / 2).clamp_min(torch.finfo(dtype).tiny)


SPEC = register(
    Relaxation(
        name="sinkhorn",
        weights=sinkhorn_topk,
        matrix=sinkhorn_matrix,
        real_k=True,
        smooth="C∞",
        max_n=1_000_000,
        row_options={"variant": "sorted"},
        reference="Xie et al. (2020)",
    )
)
