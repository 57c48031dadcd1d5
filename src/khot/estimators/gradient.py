"""The gradient of an expected loss, by any estimator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from khot.estimators.registry import Estimator, get
from khot.estimators.score_function import score_function_loss
from khot.relaxations._plain_arguments import check_floating, check_integer

__all__ = ["estimate_gradient"]


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
    name = "estimate_gradient"
    chosen = get(estimator, name)
    check_integer(name, "samples", samples)
    check_floating(name, "scores", scores)
    with torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        if chosen.needs_losses:
            losses = score_function_loss(f, leaf, k, samples=samples, generator=generator, **chosen.options)
        else:
            x = chosen(leaf.expand(samples, *leaf.shape), k, generator=generator)
            each = f(x)
            if each.shape != x.shape[:-1]:
                raise ValueError(
                    f"{name}: f must give one loss for each sample, shape {tuple(x.shape[:-1])}, "
                    f"got {tuple(each.shape)}"
                )
            losses = each.mean(0)
        return torch.autograd.grad(losses.sum(), leaf)[0]
