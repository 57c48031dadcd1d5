"""A sampled subset as a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from khot.estimators import Estimator, get
from khot.nn.operator import check_count
from khot.relaxations import hard_topk

__all__ = ["SampledTopK"]


class SampledTopK(nn.Module):
    r"""Samples k of n in training, with a gradient; takes the k largest in evaluation.

    .. math:: x \sim p_\theta \text{ (training)}, \qquad x = \operatorname{topk}(\theta) \text{ (evaluation)}

    Args:
        k: how many.
        design: what to sample from, for estimators that leave the choice: see ``khot.sample``. By default the
            estimator's own.
        estimator: how the gradient comes about: a name in ``khot.estimators.names()``, but not
            ``score_function``, which needs losses; or an estimator of ``khot.estimators.get``.
        dim: the dimension that sums to ``k``.
        largest: whether large scores are wanted, or small ones.
        options: of the estimator, as ``temperature``.

    Example:
        >>> layer = SampledTopK(2, design="tree_pivotal")
        >>> scores = torch.tensor([[3.0, 1.0, 2.0, 0.0]], requires_grad=True)
        >>> layer(scores).sum(-1)
        tensor([2.], grad_fn=<SumBackward1>)
        >>> layer.eval()(scores)
        tensor([[1., 0., 1., 0.]])

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """

    def __init__(
        self,
        k: int,
        *,
        design: str | None = None,
        estimator: str | Estimator = "sampled_straight_through",
        dim: int = -1,
        largest: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_count(name, k)
        if isinstance(estimator, Estimator):
            if design is not None or options:
                raise TypeError(
                    f"{name}: design and options belong to the estimator, which was given as {estimator}"
                )
            self.estimator = estimator
        else:
            self.estimator = get(estimator, **options, **({} if design is None else {"design": design}))
        if self.estimator.needs_losses:
            raise ValueError(
                f"{name}: estimator must give a gradient through its sample, got {self.estimator.name!r}; "
                "use khot.estimators.score_function_loss(f, scores, k)"
            )
        step = self.estimator.options.get("step")
        if isinstance(step, nn.Module):  # the state of the estimator is part of the layer's
            self.step = step
        self.k = k
        self.dim = dim
        self.largest = largest

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The sample, or in evaluation mode the k largest; ``mask`` is True where an entry may be drawn."""
        if self.training:
            return self.estimator(
                scores, self.k, generator=generator, dim=self.dim, mask=mask, largest=self.largest
            )
        return hard_topk(scores if self.largest else -scores, self.k, dim=self.dim, mask=mask)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"k={self.k}, estimator={self.estimator}, dim={self.dim}, largest={self.largest}"
