"""Straight-through for a sample: a draw forward, the gradient of its mean backward."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.registry import get
from khot.estimators._arguments import Design, check_not_mapped, distribution_of, inclusion_of, rows_of
from khot.estimators.registry import register
from khot.relaxations.straight_through import straight_through

__all__ = ["sampled_straight_through"]


@register()
def sampled_straight_through(
    scores: Tensor,
    k: float,
    *,
    design: Design = "random_tree_pivotal",
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n by a design, with the gradient of the inclusion probabilities.

    .. math:: x + \pi - \mathrm{stop}(\pi), \qquad P(x_i = 1) = \pi_i

    This is a first-order approximation of the gradient of an expected loss, exact for losses that are affine
    in x. It needs no log-probability, so it works with any design. Cost: a draw of the design and a
    :func:`khot.sigmoid_topk`.

    Args:
        scores: a floating-point tensor of any shape; −inf is never drawn, +inf always. If ``k`` or fewer
            entries can be drawn, all are.
        k: how many to draw.
        design: a name in ``khot.designs.names()`` or a class, with π = ``sigmoid_topk(scores, k)``. For
            ``conditional_poisson`` the scores are its logits, and this is :func:`simple`. For
            ``plackett_luce`` they are logits too; its π needs a quadrature, which is slow for long rows.
            Designs in a fixed order are faster, but less accurate if the loss depends on neighbouring units
            together.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = sampled_straight_through(scores, 2, generator=torch.Generator().manual_seed(0))
        >>> x.sum().item(), torch.autograd.grad(x[0], scores)[0][0] > 0
        (2.0, tensor(True))

    Reference: Bengio, Léonard & Courville (2013), arXiv:1308.3432; with designs, Wijk, Vinuesa & Azizpour
    (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """
    name = "sampled_straight_through"
    get(design, name)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_not_mapped(name, rows)
    made = distribution_of(rows, k, design)
    x = straight_through(inclusion_of(made), made.sample((), generator))
    return x.to(scores.dtype).movedim(-1, last)
