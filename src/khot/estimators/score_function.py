"""The score function (REINFORCE): unbiased for any loss, even one without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.estimators._arguments import Design, check_losses, check_not_mapped, is_transformed, rows_of
from khot.estimators._laws import check_law, scored_draw
from khot.estimators.registry import register
from khot.relaxations._plain_arguments import check_callable
from khot.relaxations.noise.perturbed import check_samples

__all__ = ["score_function", "score_function_loss", "scored_loss"]


_INSTEAD = (
    "score_function: a sample has no gradient of its own; use score_function_loss(f, scores, k) or "
    "estimate_gradient(f, scores, k, 'score_function')"
)


@register(needs_losses=True)
def score_function(
    scores: Tensor,
    k: float,
    *,
    design: Design = "conditional_poisson",
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Draw ``k`` of n; the gradient needs the losses: see :func:`score_function_loss`.

    .. math:: \nabla_\theta\, \mathbb{E} f(x) = \mathbb{E}\big[(f(x) - b)\, \nabla_\theta \log p(x)\big]

    This returns a sample like the other estimators, but a backward pass through it is an error. For gradients
    use ``estimate_gradient(f, scores, k, "score_function")`` or ``score_function_loss(f, scores, k)``. Cost:
    a draw of the design.

    Args:
        scores: a floating-point tensor of any shape; −inf is never drawn, +inf always.
        k: how many to draw.
        design: a design with a log-probability, at least given the order of the units. For
            ``conditional_poisson`` and for ``plackett_luce``, the distribution of Gumbel top-k, ``scores``
            are the logits.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension along which to draw.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, k ones along ``dim``.

    Example:
        >>> score_function(torch.tensor([2.0, 0.0, 1.0, -1.0]), 2).sum()
        tensor(2.)

    Reference: Williams (1992), Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning.
    """
    name = "score_function"
    check_law(name, design)
    rows, k, last = rows_of(name, scores, k, dim, mask, largest, generator)
    check_not_mapped(name, rows)
    if is_transformed(rows):  # there is a gradient to take of it
        raise RuntimeError(_INSTEAD)
    drawn, _ = scored_draw(design, rows.detach(), k, 1, generator)
    x = drawn[0].to(scores.dtype).movedim(-1, last)
    return cast("Tensor", _NoPathwiseGradient.apply(x, scores))  # pyright: ignore[reportUnknownMemberType]


def score_function_loss(
    f: Callable[[Tensor], Tensor],
    scores: Tensor,
    k: float,
    *,
    samples: int = 4,
    design: Design = "conditional_poisson",
    generator: torch.Generator | None = None,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""The mean loss over samples, with the score-function gradient in the scores.

    .. math:: \frac1N \sum_s (f(x_s) - b_s)\, \nabla\log p(x_s), \qquad
        b_s = \frac1{N-1} \sum_{t \ne s} f(x_t)

    The baseline of a sample is the mean of the other losses, so the gradient is unbiased. Other parameters
    that ``f`` depends on get their ordinary gradient. Cost: N draws, log-probabilities and losses.

    Args:
        f: the loss of k-hot vectors: (samples, …, n) → (samples, …). It need not be differentiable.
        scores: shape (…, n); −inf is never drawn, +inf always.
        k: how many to draw.
        samples: the number of samples N ≥ 2.
        design: a design with a log-probability, at least given the order of the units. For
            ``conditional_poisson`` and for ``plackett_luce``, the distribution of Gumbel top-k, ``scores``
            are the logits.
        generator: source of randomness; by default torch's global generator.
        mask: boolean, broadcastable to ``scores``; entries with False are never drawn.
        largest: False makes small scores likely instead of large ones.

    Returns:
        Shape (…): a loss to call ``backward`` on.

    Example:
        >>> scores = torch.zeros(5, requires_grad=True)
        >>> loss = score_function_loss(lambda x: (x[..., 0] - x[..., 1]).sign(), scores, 2, samples=1000)
        >>> loss.backward()
        >>> bool(scores.grad[0] > 0 > scores.grad[1])
        True

    Reference: Williams (1992); Kool, van Hoof & Welling (2019), Buy 4 REINFORCE Samples, Get a Baseline for
    Free!, for the baseline; Wijk, Vinuesa & Azizpour (2024), Revisiting Score Function Estimators for
    k-Subset Sampling.
    """
    return scored_loss(
        "score_function_loss",
        f,
        scores,
        k,
        samples=samples,
        design=design,
        generator=generator,
        mask=mask,
        largest=largest,
    )


def scored_loss(
    name: str,
    f: Callable[[Tensor], Tensor],
    scores: Tensor,
    k: float,
    *,
    samples: int,
    design: Design = "conditional_poisson",
    generator: torch.Generator | None = None,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    """`score_function_loss`, with errors that name another function."""
    check_samples(name, samples)
    check_callable(name, "f", f)
    check_law(name, design)
    rows, k, _ = rows_of(name, scores, k, -1, mask, largest, generator)
    check_not_mapped(name, rows)
    drawn, log_prob = scored_draw(design, rows, k, samples, generator)
    losses = f(drawn.to(scores.dtype))
    check_losses(name, losses, drawn.shape[:-1])
    fixed = losses.detach()
    baseline = (fixed.sum(0, keepdim=True) - fixed) / (samples - 1)
    surrogate = (fixed - baseline) * log_prob
    return (losses + (surrogate - surrogate.detach())).mean(0)


class _NoPathwiseGradient(torch.autograd.Function):
    """(sample, scores) → the sample, as a function of the scores whose derivative is an error."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scores: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(_INSTEAD)
