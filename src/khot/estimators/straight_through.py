"""One name for both: the primitive, and the estimator that is made of it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from khot.estimators.sampled_straight_through import sampled_straight_through
from khot.relaxations import straight_through as primitive

__all__ = ["straight_through"]


def straight_through(soft: Tensor, hard: Tensor | int, **options: Any) -> Tensor:
    r"""Return exactly ``hard``, with the gradient of ``soft``; or, given how many, draw them so.

    .. math:: \mathrm{hard} + (\mathrm{soft} - \mathrm{stop}(\mathrm{soft}))

    ``straight_through(soft, hard)`` is the primitive. ``straight_through(scores, k, design=…, generator=…)``
    is an estimator like the others: :func:`sampled_straight_through`.

    Args:
        soft: the differentiable relaxation; or scores.
        hard: the value to pass on, of the same shape, whose own gradient is dropped; or k.
        options: of :func:`sampled_straight_through`, only beside a k.

    Returns:
        A tensor equal to ``hard``, or to a sample of k, that differentiates like ``soft``, or like the
        inclusion probabilities of the scores.

    Example:
        >>> import torch
        >>> p = torch.tensor([0.2, 0.8], requires_grad=True)
        >>> straight_through(p, p.round()).tolist()
        [0.0, 1.0]
        >>> straight_through(torch.zeros(3, 6), 2, design="systematic").sum(-1)
        tensor([2., 2., 2.])

    Reference: Bengio, Léonard & Courville (2013), arXiv:1308.3432.
    """
    if not isinstance(hard, Tensor):
        return sampled_straight_through(soft, hard, **options)
    if options:
        raise TypeError(
            f"straight_through: {next(iter(options))!r} is for a sample of k, not for two tensors"
        )
    return primitive(soft, hard)
