"""Sigmoid top-k: one sigmoid gate per entry and one shared threshold.

    y = argmax ⟨x, π⟩ + τ Σᵢ H(πᵢ)  over  π ∈ [0, 1]ⁿ, Σπ = k,     H the binary entropy,
    yᵢ = σ((xᵢ + c)/τ),             c such that Σy = k.

It belongs to the threshold family (``_family.py``), with w = y(1 − y) = |r|(1 − |r|). The *residual* r is the
signed distance of y to the nearer of 0 and 1; it keeps its digits where y itself rounds to 1.

Cost: a partial sort and 2–4 passes over the row on ordinary data. References: Wijk, Vinuesa &
Azizpour (2025); Amos, Koltun & Kolter (2019), who call it the limited multi-label projection.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import Number, broadcasts_to, check_temperature
from khot.relaxations._plain_arguments import check_floating
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LOGISTIC
from khot.relaxations.threshold._plain_sigmoid import plain_sigmoid

__all__ = ["inverse_sigmoid_topk", "sigmoid_topk"]


def sigmoid_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``.

    .. math:: y_i = \sigma\big((x_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    Differentiable in ``scores``, in a tensor ``k`` and in a tensor ``temperature``, any number of times,
    in reverse and forward mode. Do not change the scores or the weights in place before the backward pass,
    which may need both.

    Units: the temperature divides the scores. Cost: O(n), a partial sort and 2–4 passes over the row.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always (if more than k are
            at +inf, they share k equally).
        k: budget, 0 ≤ k ≤ n; a number or a tensor that broadcasts to ``scores.shape`` without ``dim``.
            It need not be an integer.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0. A row with k or
            fewer allowed entries gives each of them exactly 1.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer,
            a tensor is rounded).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in sigmoid_topk(x, 2).tolist()]
        [0.859, 0.451, 0.691]
        >>> [round(v, 3) for v in sigmoid_topk(x, 2, temperature=0.1).tolist()]
        [1.0, 0.007, 0.993]
        >>> sigmoid_topk(x, 2, hard=True).tolist()
        [1.0, 0.0, 1.0]

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """
    if mask is None and largest is True and hard is False:
        y = plain_sigmoid(scores, k, temperature, dim)
        if y is not None:
            return y
    return gated_topk("sigmoid_topk", LOGISTIC, scores, k, temperature, dim, mask, largest, hard)


def inverse_sigmoid_topk(y: Tensor, *, temperature: Number | Tensor = 1.0) -> Tensor:
    r"""Scores whose sigmoid top-k is ``y``, unique up to a constant along the selected dimension.

    .. math:: x = \tau \log\frac{y}{1 - y}

    so that ``sigmoid_topk(inverse_sigmoid_topk(y), y.sum(-1)) == y``. The constant is chosen so that the
    threshold is at 0. A weight of 0 gives −inf and a weight of 1 gives +inf. Cost: elementwise.

    Args:
        y: weights in [0, 1], a floating-point tensor of any shape; the budget is their sum along any
            dimension.
        temperature: > 0, a number or a tensor that broadcasts to ``y``.

    Returns:
        Scores in the shape and dtype of ``y``.

    Example:
        >>> y = torch.tensor([0.25, 0.5, 0.75, 0.5])
        >>> torch.allclose(sigmoid_topk(inverse_sigmoid_topk(y), 2), y)
        True
    """
    name = "inverse_sigmoid_topk"
    check_floating(name, "y", y)
    if is_plain(y):
        low, high = y.detach().aminmax()
        if not (low >= 0 and high <= 1):
            raise ValueError(f"{name}: y must lie in [0, 1], got values in [{low.item():g}, {high.item():g}]")
    check_temperature(name, temperature)
    if isinstance(temperature, Tensor) and not broadcasts_to(temperature.shape, y.shape):
        raise ValueError(
            f"{name}: temperature must broadcast to y.shape = {tuple(y.shape)}, "
            f"got shape {tuple(temperature.shape)}"
        )
    return (temperature * torch.logit(y)).to(y.dtype)


SPEC = register(
    Relaxation(
        name="sigmoid",
        weights=sigmoid_topk,
        real_k=True,
        smooth="C∞",
        max_n=1_000_000,
        reference="Wijk, Vinuesa & Azizpour (2025); Amos, Koltun & Kolter (2019)",
    )
)
