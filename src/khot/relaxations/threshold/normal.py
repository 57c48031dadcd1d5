"""Normal top-k: gates with the CDF of the normal distribution and one shared threshold.

    yᵢ = Φ((xᵢ + c)/τ),   c such that Σy = k.

yᵢ is the probability that a score with Gaussian noise of standard deviation τ exceeds one *fixed* threshold.
It is not the probability that the entry is among the k largest noisy scores, because there the threshold
moves with the noise.

It belongs to the threshold family (``_family.py``), with w = φ((x + c)/τ). Cost: two or three passes over the
row; each evaluates Φ once per entry.
"""

from __future__ import annotations

from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import NORMAL

__all__ = ["normal_topk"]


def normal_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, with normal gates.

    .. math:: y_i = \Phi\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    Differentiable in ``scores``, in a tensor ``k`` and in a tensor ``temperature``, any number of times.

    Units: the temperature divides the scores; it is a standard deviation. Cost: O(n), two or three passes
    over the row.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n, any real number, or a tensor that broadcasts to
            ``scores.shape`` without ``dim``.
        temperature: > 0, a number or a tensor like ``k``: the standard deviation of the normal CDF; the
            hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in normal_topk(x, 2).tolist()]
        [0.943, 0.338, 0.719]

    Reference: Wijk, Vinuesa & Azizpour (2025) for the family; there is no paper on normal gates.
    """
    return gated_topk("normal_topk", NORMAL, scores, k, temperature, dim, mask, largest, hard)


SPEC = register(
    Relaxation(
        name="normal",
        weights=normal_topk,
        real_k=True,
        smooth="C∞",
        max_n=1_000_000,
        reference="the family of Wijk, Vinuesa & Azizpour (2025)",
    )
)
