"""The usual baseline: a Gumbel top-k sample with the gradient of its relaxation."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.estimators._arguments import check_relaxation, rows_of
from khot.estimators.registry import register
from khot.relaxations._arguments import Number
from khot.relaxations.noise.gumbel import gumbel_topk

__all__ = ["gumbel_straight_through"]


@register(design="plackett_luce")
def gumbel_straight_through(
    scores: Tensor,
    k: float,
    *,
    temperature: Number = 1.0,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n without replacement, with the gradient of ``khot.gumbel_topk`` at the same noise.

    .. math:: x = \operatorname{topk}(\theta + G), \qquad
        \partial x := \partial\, \sigma_k\big((\theta + G)/\tau\big)

    with Gumbel noise G. The sample is Plackett–Luce: its inclusion probabilities are not
    ``sigmoid_topk(scores, k)``, unlike those of the designs. Cost: O(n), a top-k and a sigmoid top-k.

    Args:
        scores: logits (log weights) θ, a floating-point tensor of any shape; −inf is never drawn, +inf
            always.
        k: how many to draw.
        temperature: > 0, of the relaxation; the distribution of the sample does not depend on it.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = gumbel_straight_through(scores, 2)
        >>> x.sum().item(), x.requires_grad
        (2.0, True)

    Reference: Kool, van Hoof & Welling (2019) for the sample; Jang, Gu & Poole (2017), Categorical
    Reparameterization with Gumbel-Softmax, for k = 1.
    """
    name = "gumbel_straight_through"
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_relaxation(name, scores, temperature, last)
    x = gumbel_topk(rows, k, temperature=temperature, generator=generator, hard=True)
    return x.to(scores.dtype).movedim(-1, last)
