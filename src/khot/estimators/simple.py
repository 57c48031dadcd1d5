"""SIMPLE: a conditional Poisson draw in the forward pass, its exact covariance in the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.estimators._arguments import check_not_mapped, distribution_of, rows_of
from khot.estimators.registry import register
from khot.relaxations.straight_through import straight_through

__all__ = ["simple"]


@register(design="conditional_poisson")
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

    This is straight-through with the maximum-entropy design. Sample and marginals belong to the same
    distribution; a Gumbel top-k sample would have other inclusion probabilities than the gradient. Cost: that
    of :class:`khot.designs.ConditionalPoisson`, O(nk) for small k, O(n log² k) otherwise.

    Args:
        scores: logits θ, a floating-point tensor of any shape; −inf is never drawn, +inf always. If ``k`` or
            fewer entries can be drawn, all are.
        k: how many to draw.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

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
    rows, k, last = rows_of("simple", scores, k, dim, mask, largest, generator)
    check_not_mapped("simple", rows)
    made = distribution_of(rows, k, "conditional_poisson")
    x = straight_through(made.mean, made.sample((), generator))
    return x.to(scores.dtype).movedim(-1, last)
