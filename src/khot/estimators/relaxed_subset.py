"""The relaxed subset: k successive softmaxes on Gumbel-perturbed scores."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.estimators._arguments import check_relaxation, rows_of
from khot.estimators.registry import register
from khot.relaxations._arguments import Number
from khot.relaxations._noise import gumbel
from khot.relaxations._plain_arguments import check_switches
from khot.relaxations.rows.successive_softmax import successive_softmax_topk

__all__ = ["relaxed_subset"]


@register(design="plackett_luce")
def relaxed_subset(
    scores: Tensor,
    k: float,
    *,
    temperature: Number = 1.0,
    capped: bool = False,
    hard: bool = False,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""A relaxed sample of ``k`` of n without replacement: differentiable, but not zeros and ones.

    .. math:: x = \sum_{r=1}^k p_r, \qquad p_r = \operatorname{softmax}(\alpha_r/\tau), \qquad
              \alpha_{r+1} = \alpha_r + \log(1 - p_r), \qquad \alpha_1 = \theta + G

    with Gumbel noise G; as τ → 0 it becomes the Gumbel top-k sample. Cost: O(kn).

    Args:
        scores: logits (log weights) θ, a floating-point tensor of any shape; −inf is never drawn, +inf
            always.
        k: how many to draw.
        temperature: > 0, of the relaxation.
        capped: project the sample, which may exceed 1, on the capped simplex.
        hard: the exact sample forward, the gradient of the relaxed sample backward.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Weights in the shape and dtype of ``scores``, not negative, with sum k along ``dim``.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = relaxed_subset(scores, 2, capped=True)
        >>> round(x.sum().item(), 5), bool(x.max() <= 1)
        (2.0, True)

    Reference: Xie & Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations.
    """
    name = "relaxed_subset"
    check_switches(name, capped=capped, hard=hard)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_relaxation(name, scores, temperature, last)
    noisy = rows + gumbel(tuple(rows.shape), rows.device, generator).to(rows.dtype)
    x = successive_softmax_topk(noisy, k, temperature=temperature, capped=capped, hard=hard)
    return x.to(scores.dtype).movedim(-1, last)
