"""Laplace top-k: gates with the CDF of the Laplace distribution and one shared threshold.

    y = argmax ⟨x, π⟩ − τ Σᵢ ω(πᵢ)  over  π ∈ [0, 1]ⁿ, Σπ = k,    ω(p) = m log 2m − m,  m = min(p, 1 − p),
    yᵢ = F((xᵢ + c)/τ),   F(a) = eᵃ/2 for a < 0, 1 − e⁻ᵃ/2 above,   c such that Σy = k.

It belongs to the threshold family (``_family.py``), with w = min(y, 1 − y). It is only once differentiable
where a weight is ½. Between two scores the threshold is the root of a quadratic equation, so each pass of the
compiled kernel solves a whole piece. Cost: a few passes over the row and, unless it is short, a selection; no
sort. Reference: Struski et al. (2025), LapSum.
"""

from __future__ import annotations

from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LAPLACE

__all__ = ["laplace_topk"]


def laplace_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, with Laplace gates.

    .. math:: y_i = F\big((x_i + c)/\tau\big), \quad
              F(a) = \begin{cases} e^a/2 & a < 0 \\ 1 - e^{-a}/2 & a \ge 0 \end{cases}, \quad
              c \text{ such that } \textstyle\sum_i y_i = k

    Differentiable in ``scores``, in a tensor ``k`` and in a tensor ``temperature``.

    Units: the temperature divides the scores. Cost: O(n), a few passes over the row; no sort.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n, any real number, or a tensor that broadcasts to
            ``scores.shape`` without ``dim``.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in laplace_topk(x, 2).tolist()]
        [0.905, 0.355, 0.741]

    Reference: Struski, Bednarczyk, Podolak & Tabor (2025), LapSum: One Method to Differentiate Them All.
    """
    return gated_topk("laplace_topk", LAPLACE, scores, k, temperature, dim, mask, largest, hard)


SPEC = register(
    Relaxation(
        name="laplace",
        weights=laplace_topk,
        real_k=True,
        smooth="C¹",
        max_n=1_000_000,
        reference="Struski et al. (2025)",
    )
)
