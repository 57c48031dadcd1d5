r"""ReinMax for k-hot samples: straight-through to second order.

The true gradient is E[∇log p(x) (f(x) − f(π))]. For quadratic f the trapezoidal rule for the difference,
½⟨∇f(x) + ∇f(π), x − π⟩, is exact, and E[∇f(x)] = ∇f(π). So

    ½ J ∇f(x) + ½ ∇log p(x) ⟨x − π, ∇f(x)⟩,    J = ∂π/∂θ,

has the right mean, for any design with E[x] = π and a log-probability. For k = 1 it is ReinMax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs import ConditionalPoisson
from khot.estimators._arguments import (
    Design,
    check_not_mapped,
    distribution_of,
    has_log_prob,
    inclusion_of,
    rows_of,
)
from khot.estimators._laws import check_law, finite
from khot.estimators.registry import register

__all__ = ["reinmax"]


@register()
def reinmax(
    scores: Tensor,
    k: float,
    *,
    design: Design = "conditional_poisson",
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n by a design, with a gradient that is right to second order.

    .. math:: \tfrac12 J\, \nabla f(x) + \tfrac12\, \nabla\!\log p(x)\, \langle x - \pi, \nabla f(x)\rangle

    with J = ∂π/∂θ. It is exact in expectation for functions that are quadratic in x. For conditional Poisson
    sampling J is the covariance and ∇log p(x) = x − π. Cost: a draw, a log-probability and the inclusion
    probabilities of the design.

    Args:
        scores: a floating-point tensor of any shape; −inf is never drawn, +inf always. If ``k`` or fewer
            entries can be drawn, all are.
        k: how many to draw.
        design: a design with a log-probability: ``conditional_poisson`` (``scores`` are then its logits), or
            ``tree_pivotal``, ``sampford``, ``systematic``, … (with π = ``sigmoid_topk(scores, k)``).
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0], requires_grad=True)
        >>> x = reinmax(scores, 2, design="tree_pivotal")
        >>> x.sum().item(), x.requires_grad
        (2.0, True)

    Reference: Liu, Dong, Liu, Yu & Gao (2023), Bridging Discrete and Backpropagation: Straight-Through and
    Beyond, for k = 1.
    """
    name = "reinmax"
    check_law(name, design, has_log_prob)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_not_mapped(name, rows)
    made = distribution_of(rows, k, design)
    pi = inclusion_of(made)
    x = made.sample((), generator)
    away = (x - pi).detach()
    if isinstance(made, ConditionalPoisson):  # of the exponential family: its score is at hand already
        log_prob = (away * torch.where(rows.isfinite(), rows, 0.0)).sum(-1, keepdim=True)
    else:
        log_prob = finite(made.log_prob(x)).unsqueeze(-1)
    x = x + (pi - pi.detach()) / 2 + away / 2 * (log_prob - log_prob.detach())
    return x.to(scores.dtype).movedim(-1, last)
