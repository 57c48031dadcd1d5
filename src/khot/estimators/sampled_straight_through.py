"""Straight-through for a sample: forward a draw, backward the gradient of its mean."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs.registry import get
from khot.estimators._arguments import Design, distribution_of, inclusion_of, rows_of
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

    A first-order approximation of the true gradient of an expectation, exact for functions that are affine in
    x. It needs no log-probability, so any design will do.

    Args:
        scores: any floating shape; −inf is never drawn, +inf always. Where ``k`` or fewer may be, all are.
        k: how many are drawn.
        design: a name in ``khot.designs.names()`` or a class; π is ``sigmoid_topk(scores, k)``, but for
            ``conditional_poisson`` the scores are its logits, and this is :func:`simple`; so they are for
            ``plackett_luce``, whose π is a quadrature and slow for long rows. Designs in a fixed order are
            faster, but further from the truth where units that follow each other matter together.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension that is drawn from.
        mask: boolean, broadcastable to ``scores``; False is never drawn.
        largest: whether large scores are likely, or small ones.

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
    rows, k, last = rows_of(name, scores, k, dim, mask, largest)
    made = distribution_of(rows, k, design)
    x = straight_through(inclusion_of(made), made.sample((), generator))
    return x.to(scores.dtype).movedim(-1, last)
