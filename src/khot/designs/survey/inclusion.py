"""Inclusion probabilities from sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs._arguments import check_size
from khot.designs._proportional import held_from
from khot.designs.survey._units import check_values

__all__ = ["inclusion_probabilities"]


def inclusion_probabilities(sizes: Tensor, k: float) -> Tensor:
    r"""Inclusion probabilities proportional to size, none above 1.

    .. math:: \pi_i = \min(1, c \cdot \text{size}_i), \qquad \sum_i \pi_i = k

    Differentiable in the sizes, except where a unit just reaches 1. R: ``inclusionprobabilities``. Cost: a
    sort.

    Args:
        sizes: not negative, shape (…, n); a unit of size 0 is never drawn. At least ``k`` sizes of each row
            must be positive.
        k: the sum, 0 ≤ k ≤ n; most designs need an integer.

    Returns:
        π of the shape and dtype of ``sizes``.

    Example:
        >>> inclusion_probabilities(torch.tensor([1.0, 2.0, 3.0, 14.0]), 2)
        tensor([0.1667, 0.3333, 0.5000, 1.0000])

    Reference: Tillé (2006), Sampling Algorithms.
    """
    name = "inclusion_probabilities"
    check_values(name, "sizes", sizes)
    n = sizes.shape[-1]
    k = check_size(name, k, n, whole=False)
    if not bool((sizes.isfinite() & (sizes >= 0)).all()):
        low, high = sizes.detach().aminmax()
        raise ValueError(f"{name}: sizes must be finite and not negative, got values in [{low:g}, {high:g}]")
    positive = int((sizes > 0).sum(-1).min()) if sizes.numel() else n
    if positive < k:
        raise ValueError(f"{name}: at least k = {k} sizes of each row must be positive, got {positive}")
    # Relative to the largest, so that no sum overflows.
    exact = sizes.double() / sizes.detach().double().amax(-1, keepdim=True).clamp_min(
        torch.finfo(torch.float64).tiny
    )
    increasing, order = exact.sort(-1)
    bound, sums = held_from(increasing)
    held = bound <= k
    count = held.sum(-1, keepdim=True)
    rest = sums.gather(-1, (n - 1 - count).clamp_min(0))
    # The count as float64: a number less whole numbers is in torch's default dtype, float32.
    share = (k - count.double()) / torch.where(rest > 0, rest, 1.0)
    pi = torch.where(held, 1.0, (increasing * share).clamp(0, 1))
    return pi.gather(-1, order.argsort(-1)).to(sizes.dtype)
