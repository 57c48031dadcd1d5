"""SIMPLE: forward a conditional Poisson draw, backward its exact covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.estimators._arguments import distribution_of, rows_of
from khot.estimators.registry import register
from khot.relaxations.straight_through import straight_through

__all__ = ["simple"]


@register(law="conditional_poisson")
def simple(
    scores: Tensor,
    k: float,
    *,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n by conditional Poisson sampling, with the gradient of its exact marginals.

    .. math:: p(x) \propto e^{\langle\theta, x\rangle}, \qquad
        \frac{\partial f(x)}{\partial\theta} \approx \operatorname{Cov}(x)\, \nabla f(x)

    Straight-through with the maximum-entropy design and its own marginals. Sample and marginals are of one
    law: a Gumbel top-k sample here would have other inclusion probabilities than the gradient.

    Args:
        scores: logits θ, any floating shape; −inf is never drawn, +inf always. Where ``k`` or fewer may be,
            all are.
        k: how many are drawn.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension that is drawn from.
        mask: boolean, broadcastable to ``scores``; False is never drawn.
        largest: whether large scores are likely, or small ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``.

    Example:
        >>> scores = torch.zeros(4, requires_grad=True)
        >>> x = simple(scores, 2)
        >>> torch.autograd.grad(x[0], scores)[0]  # the covariances with the first
        tensor([ 0.2500, -0.0833, -0.0833, -0.0833])

    Reference: Ahmed, Zeng, Niepert & Van den Broeck (2023), SIMPLE: A Gradient Estimator for k-Subset
    Sampling.
    """
    rows, k, last = rows_of("simple", scores, k, dim, mask, largest)
    made = distribution_of(rows, k, "conditional_poisson")
    x = straight_through(made.mean, made.sample((), generator))
    return x.to(scores.dtype).movedim(-1, last)
