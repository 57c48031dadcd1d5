"""Metrics that compare a soft selection with the exact one.

topk_overlap      share of the true top k that is among the k largest weights
weight_on_topk    share of the budget that lies on the true top k
entropy           how soft k-hot weights are
nccs              how close k approximate vectors are to the k true ones

Each returns one number per row. The first two break ties by index, as ``hard_topk`` does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    budget,
    check_device,
    check_mask,
    compute_dtype,
    position,
)
from khot.relaxations._chunks import chunks
from khot.relaxations._plain_arguments import check_floating, check_switch
from khot.relaxations.hard import hard_topk

__all__ = ["entropy", "nccs", "topk_overlap", "weight_on_topk"]


def topk_overlap(
    weights: Tensor, scores: Tensor, k: Number | Tensor, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""The share of the true top k of ``scores`` that is among the k largest of ``weights``.

    .. math:: \frac{|\operatorname{top}_k(w) \cap \operatorname{top}_k(x)|}{\min(k, m)}

    with m the number of allowed entries. A row with nothing to select (k or m is 0) gives 1. If the relevant
    entries are given directly, use :func:`khot.metrics.recall_at_k` instead. Cost: two selections of k.

    Args:
        weights: the approximation to test: k-hot weights, or scores of its own.
        scores: the true scores, of the shape of ``weights``. −inf is never selected.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to the shape without ``dim``.
        dim: the dimension along which entries are selected.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.

    Returns:
        Shares in [0, 1], of the shape of ``scores`` without ``dim``. They have no gradient.

    Example:
        >>> weights, scores = torch.tensor([0.9, 0.2, 0.8, 0.1]), torch.tensor([4.0, 3.0, 2.0, 1.0])
        >>> topk_overlap(weights, scores, 2).item()
        0.5
    """
    last, true, size = _true_topk("topk_overlap", weights, scores, k, dim, mask)
    allowed = allowed_scores("topk_overlap", scores, mask) != -math.inf
    found = hard_topk(weights.detach(), k, dim=last, mask=allowed).to(true.dtype) * true
    return _share(found.sum(last), size, weights.dtype)


def weight_on_topk(
    weights: Tensor, scores: Tensor, k: Number | Tensor, *, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    r"""The share of the budget that k-hot ``weights`` put on the true top k of ``scores``.

    .. math:: \frac{1}{\min(k, m)} \sum_{i \in \operatorname{top}_k(x)} w_i

    with m the number of allowed entries. It is 1 for the hard selection and k/n for uniform weights; a row
    with nothing to select (k or m is 0) gives 1. Differentiable in ``weights``. Cost: one selection of k.

    Args:
        weights: k-hot weights.
        scores: the true scores, of the shape of ``weights``. −inf is never selected.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to the shape without ``dim``.
        dim: the dimension along which entries are selected.
        mask: boolean, broadcastable to ``scores``, True where an entry may be selected.

    Returns:
        Shares of the shape of ``scores`` without ``dim``.

    Example:
        >>> weights, scores = torch.tensor([0.75, 0.5, 0.5, 0.25]), torch.tensor([4.0, 3.0, 2.0, 1.0])
        >>> weight_on_topk(weights, scores, 2).item()
        0.625
    """
    last, true, size = _true_topk("weight_on_topk", weights, scores, k, dim, mask)
    on_true = torch.where(true != 0, weights.to(true.dtype), 0)
    return _share(on_true.sum(last), size, weights.dtype)


def entropy(
    weights: Tensor, *, dim: int = -1, mask: Tensor | None = None, normalized: bool = False
) -> Tensor:
    r"""How soft k-hot weights are: the sum of their binary entropies, in nats.

    .. math:: \sum_i h(w_i), \qquad h(p) = -p \log p - (1 - p) \log(1 - p)

    It is 0 for a hard selection and largest, :math:`n\,h(k/n)`, if all n weights are k/n. Weights are clamped
    to [0, 1]; weights of exactly 0 or 1 add nothing and have gradient 0. Cost: elementwise.

    Args:
        weights: k-hot weights, a floating-point tensor of any shape.
        dim: the dimension over which to sum.
        mask: boolean, broadcastable to ``weights``; entries with False take no part and do not count in n.
        normalized: divide by the largest possible value, with k the sum of the clamped weights: from 0 (hard)
            to 1 (uniform). If the largest possible value is 0, the result is 0.

    Returns:
        Entropies of the shape of ``weights`` without ``dim``.

    Example:
        >>> entropy(torch.tensor([1.0, 0.5, 0.5, 0.0])).item()
        1.386...
        >>> entropy(torch.full((4,), 0.25), normalized=True).item()
        1.0
    """
    last = position("entropy", weights, dim, "weights")
    check_switch("entropy", "normalized", normalized)
    y = weights.to(compute_dtype(weights)).clamp(0, 1)
    count = torch.full((), y.shape[last], dtype=y.dtype, device=y.device)
    if mask is not None:
        check_mask("entropy", weights, mask)
        y = torch.where(mask, y, 0)
        count = mask.expand(y.shape).sum(last).to(y.dtype)
    total = _binary_entropy(y).sum(last)
    if normalized:
        most = count * _binary_entropy(y.sum(last) / count.clamp_min(1))
        nothing = most == 0
        total = torch.where(nothing, 0, total / torch.where(nothing, 1, most))
    return total.to(weights.dtype)


def nccs(true: Tensor, approx: Tensor) -> Tensor:
    r"""Normalised Chamfer cosine similarity: how close the best match of each true vector is.

    .. math:: \frac{1}{k} \sum_{i=1}^{k} \max_{j \le m} \cos(t_i, a_j)

    It is 1 if every true vector has a positive multiple of itself among the approximate ones, in any order.
    The cosine of a zero vector is 0. Cost: O(kmd), in blocks, so that memory does not grow with k·m.

    Args:
        true: the vectors of the exact selection, shape (…, k, d).
        approx: the vectors of the approximation, shape (…, m, d), with the same leading dimensions.

    Returns:
        Similarities in [−1, 1], of the shape of the leading dimensions.

    Example:
        >>> true, approx = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 1.0], [3.0, 4.0]])
        >>> round(nccs(true, approx).item(), 3)  # (0.6 + 1)/2
        0.8

    Reference: Pietruszka, Borchmann & Graliński (2021), Successive Halving Top-k Operator.
    """
    for argument, value in (("true", true), ("approx", approx)):
        check_floating("nccs", argument, value)
        if value.dim() < 2 or value.shape[-2] == 0:
            raise ValueError(
                f"nccs: {argument} must hold one vector or more, shape (…, count, d), "
                f"got {tuple(value.shape)}"
            )
    if true.shape[:-2] != approx.shape[:-2] or true.shape[-1] != approx.shape[-1]:
        raise ValueError(
            "nccs: true and approx must agree in all dimensions but the last but one, "
            f"got {tuple(true.shape)} and {tuple(approx.shape)}"
        )
    dtype = torch.promote_types(compute_dtype(true), compute_dtype(approx))
    rows, columns = _directions(true.to(dtype)), _directions(approx.to(dtype)).mT
    parts = chunks(rows.shape[-2], math.prod(columns.shape[:-2]) * columns.shape[-1])
    nearest = [(rows[..., part, :] @ columns).amax(-1) for part in parts]
    return torch.cat(nearest, -1).mean(-1).clamp(-1, 1).to(true.dtype)


def _true_topk(
    name: str, weights: Tensor, scores: Tensor, k: Number | Tensor, dim: int, mask: Tensor | None
) -> tuple[int, Tensor, Tensor]:
    """The position of ``dim``, the true selection in the dtype of computation, and its size per row."""
    last = position(name, scores, dim)
    check_floating(name, "weights", weights)
    if weights.shape != scores.shape:
        raise ValueError(
            f"{name}: weights must have the shape of scores, {tuple(scores.shape)}, "
            f"got {tuple(weights.shape)}"
        )
    check_device(name, scores, "weights", weights)
    budget(name, scores, k, last, integer=True)
    if mask is not None:
        check_mask(name, scores, mask)
    true = hard_topk(scores.detach(), k, dim=last, mask=mask).to(compute_dtype(weights))
    return last, true, true.sum(last)


def _share(part: Tensor, size: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(size > 0, part / size.clamp_min(1), 1).to(dtype)


def _binary_entropy(p: Tensor) -> Tensor:
    inside = ~((p <= 0) | (p >= 1))  # NaN stays
    q = torch.where(inside, p, 0.5)
    return torch.where(inside, -q * q.log() - (1 - q) * torch.log1p(-q), 0)


def _directions(vectors: Tensor) -> Tensor:
    """Unit vectors, or 0; by way of the largest entry, whose square may overflow."""
    largest = vectors.abs().amax(-1, keepdim=True) if vectors.shape[-1] else vectors.sum(-1, keepdim=True)
    zero = largest == 0
    scaled = vectors / torch.where(zero, 1, largest).detach()
    norm = torch.where(zero, 1, scaled.square().sum(-1, keepdim=True)).sqrt()
    return scaled / norm
