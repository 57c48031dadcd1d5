r"""Other features for each row: a network scores them, a top-k keeps k, another network sees only those.

    scores = s(x),   y = top-k weights of the scores,   prediction = f(x ⊙ y),

trained together by the loss of f, so that the features kept for a row are those that explain its label: the
setting of L2X (Chen et al. 2018, k given, k draws of a Gumbel softmax each) and of INVASE (Yoon et al. 2019,
no k, an actor and a critic). Here the top-k is any of khot's, relaxed or drawn. A selection that sees the
whole row can tell the label by which features it keeps; look at the features, not only at the accuracy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from khot.apps.features._product import gated
from khot.nn import TopK
from khot.nn._evaluation import EvalMode
from khot.relaxations.registry import Relaxation

__all__ = ["InstanceSelector", "SelectedFeatures"]


class SelectedFeatures(NamedTuple):
    """What an :class:`InstanceSelector` gives: ``values``, features times weights, and the ``weights``."""

    values: Tensor
    weights: Tensor


class InstanceSelector(nn.Module):
    """Keeps k features of each row, by the scores of a network.

    Args:
        scorer: from rows (…, n) to scores (…, n).
        k: how many features a row keeps; for methods with a real-valued budget it need not be an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`; ``"gumbel"`` draws.
        temperature: > 0, in the units of the scores; anneal it with a
            :class:`khot.schedules.TemperatureScheduler`.
        learn_temperature: make it a parameter.
        eval_mode: ``"hard"``: exactly k in evaluation; ``"same"``: as in training, without noise.
        hard: exactly k in training too, with the relaxation's gradient.
        options: further options of the method.

    Example:
        >>> selector = InstanceSelector(torch.nn.Linear(6, 6), k=2).eval()
        >>> values, weights = selector(torch.randn(4, 6))
        >>> weights.sum(-1)
        tensor([2., 2., 2., 2.], grad_fn=<SumBackward1>)
    """

    def __init__(
        self,
        scorer: nn.Module,
        k: float,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 1.0,
        learn_temperature: bool = False,
        eval_mode: EvalMode = "hard",
        hard: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(scorer, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{type(self).__name__}: scorer must be a module of torch, got {type(scorer).__name__}"
            )
        self.scorer = scorer
        self.topk = TopK(
            k,
            method,
            temperature=temperature,
            learn_temperature=learn_temperature,
            eval_mode=eval_mode,
            hard=hard,
            **options,
        )

    def scores(self, x: Tensor) -> Tensor:
        """The scores of the features of each row."""
        scores = self.scorer(x)
        if scores.shape != x.shape:
            raise ValueError(
                f"{type(self).__name__}: scorer must give a score for each feature, {tuple(x.shape)}, "
                f"got the shape {tuple(scores.shape)}"
            )
        return scores

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> SelectedFeatures:
        """Features of the rows (…, n) times their weights, and the weights.

        Args:
            x: rows.
            mask: boolean, broadcastable to ``x``, True where a feature may be kept.
            generator: where a random method draws from.
        """
        weights = self.topk(self.scores(x), mask, generator=generator).to(x.dtype)
        return SelectedFeatures(gated(x, weights), weights)

    @torch.no_grad()
    def selected(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Which features each row keeps, best first, (…, k); −1 where fewer are allowed."""
        return self.topk.selected(self.scores(x), mask)
