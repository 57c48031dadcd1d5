"""The gradient of an expected loss, by any estimator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from khot.estimators._arguments import check_k, check_losses
from khot.estimators.registry import Estimator, get
from khot.estimators.score_function import scored_loss
from khot.relaxations._arguments import position
from khot.relaxations._plain_arguments import check_callable, check_integer

__all__ = ["estimate_gradient", "gradient_of"]


def estimate_gradient(
    f: Callable[[Tensor], Tensor],
    scores: Tensor,
    k: float,
    estimator: str | Estimator,
    *,
    samples: int = 4,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Estimate the gradient of an expected loss in the scores, row by row.

    .. math:: \nabla_\theta\, \mathbb{E}_{x \sim p_\theta} f(x)

    Cost: ``samples`` draws and evaluations of the loss, and one backward pass.

    Args:
        f: the loss of k-hot vectors: (samples, …, n) → (samples, …).
        scores: shape (…, n).
        k: how many to draw.
        estimator: a name, or an estimator from :func:`get`.
        samples: how many draws to average; at least 2 for ``score_function``, which uses them as a baseline.
        generator: source of randomness; by default torch's global generator.

    Returns:
        The gradient, in the shape of ``scores``.

    Example:
        >>> scores = torch.tensor([1.0, 0.0, -1.0, 0.0])
        >>> f = lambda x: (x * torch.tensor([1.0, 0.0, 0.0, -1.0])).sum(-1)
        >>> for name in ("simple", "score_function"):
        ...     g = estimate_gradient(f, scores, 2, name, samples=4000)
        ...     print(bool(g[0] > 0.1), bool(g[3] < -0.1))
        True True
        True True

    Reference: Mohamed, Rosca, Figurnov & Mnih (2020), Monte Carlo Gradient Estimation in Machine Learning.
    """
    return gradient_of("estimate_gradient", f, scores, k, estimator, samples, generator)


def gradient_of(
    name: str,
    f: Callable[[Tensor], Tensor],
    scores: Tensor,
    k: float,
    estimator: str | Estimator,
    samples: int,
    generator: torch.Generator | None,
) -> Tensor:
    """`estimate_gradient`, with errors that name another function."""
    check_callable(name, "f", f)
    chosen = get(estimator, name)
    check_integer(name, "samples", samples, 2 if chosen.needs_losses else 1)
    check_k(name, scores, k, position(name, scores, -1))
    with torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        if chosen.needs_losses:
            total = scored_loss(
                name, f, leaf, k, samples=samples, generator=generator, **chosen.options
            ).sum()
        else:
            x = chosen(leaf.expand(samples, *leaf.shape), k, generator=generator)
            each = f(x)
            check_losses(name, each, x.shape[:-1])
            total = each.sum() / samples
        found = torch.autograd.grad(total, leaf, allow_unused=True)[0] if total.requires_grad else None
    if found is None:
        raise ValueError(
            f"{name}: f must be differentiable for the estimator {chosen.name!r}, got losses without a "
            "gradient in the samples; 'score_function' needs none"
        )
    return found
