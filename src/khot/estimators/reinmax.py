r"""ReinMax for k-hot samples: straight-through to second order.

The true gradient is E[∇log p(x) (f(x) − f(π))]. The trapezoid rule for the difference,
½⟨∇f(x) + ∇f(π), x − π⟩, is exact for quadratic f, and then E[∇f(x)] = ∇f(π), so that

    ½ J ∇f(x) + ½ ∇log p(x) ⟨x − π, ∇f(x)⟩,    J = ∂π/∂θ,

has the right mean: for any design with E[x] = π and a log-probability. With k = 1 it is ReinMax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.designs import ConditionalPoisson
from khot.estimators._arguments import Design, distribution_of, inclusion_of, rows_of
from khot.estimators._laws import check_log_prob
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

    Exact in expectation for functions that are quadratic in x. For conditional Poisson sampling J is the
    covariance and ∇log p(x) = x − π.

    Args:
        scores: any floating shape; −inf is never drawn, +inf always. Where ``k`` or fewer may be, all are.
        k: how many are drawn.
        design: one with a log-probability: ``conditional_poisson`` (of which ``scores`` are the logits),
            ``tree_pivotal``, ``sampford``, ``systematic``, … (π is ``sigmoid_topk(scores, k)``).
        generator: source of randomness; by default torch's global generator.
        dim: the dimension that is drawn from.
        mask: boolean, broadcastable to ``scores``; False is never drawn.
        largest: whether large scores are likely, or small ones.

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
    check_log_prob(name, design)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest)
    made = distribution_of(rows, k, design)
    pi = inclusion_of(made)
    x = made.sample((), generator)
    away = (x - pi).detach()
    if isinstance(made, ConditionalPoisson):  # of the exponential family: its score is at hand already
        log_prob = (away * torch.where(rows.isfinite(), rows, 0.0)).sum(-1, keepdim=True)
    else:
        log_prob = made.log_prob(x).unsqueeze(-1)
        # A set of probability zero but for rounding can be drawn; it has no gradient.
        log_prob = torch.where(log_prob.isfinite(), log_prob, 0.0)
    x = x + (pi - pi.detach()) / 2 + away / 2 * (log_prob - log_prob.detach())
    return x.to(scores.dtype).movedim(-1, last)
