r"""Instance-wise selection: a network scores the features of a row, and a second network sees only the top k.

    scores = s(x),   y = top-k weights of the scores,   prediction = f(x ⊙ y),

Both are trained together with the loss of f, so that the features kept for a row explain its label. This is
the setting of L2X (Chen et al. 2018: given k, with k Gumbel-softmax draws) and of INVASE (Yoon et al. 2019:
no k, an actor and a critic). Here the top-k may be any operator of khot, relaxed or sampled. Caution: the
scorer sees the whole row, so it can encode the label in the choice of features; look at the features, not
only at the accuracy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from khot.apps.features._product import gated
from khot.nn import TopK
from khot.nn._evaluation import EvalMode
from khot.relaxations._plain_arguments import check_floating, check_generator, check_tensor
from khot.relaxations.registry import Relaxation

__all__ = ["InstanceSelector", "SelectedFeatures"]


class SelectedFeatures(NamedTuple):
    """The result of an :class:`InstanceSelector`: ``values``, features times weights, and the ``weights``.

    Example:
        >>> found = InstanceSelector(torch.nn.Linear(6, 6), k=2)(torch.randn(4, 6))
        >>> found.values.shape, found.weights.shape
        (torch.Size([4, 6]), torch.Size([4, 6]))
    """

    values: Tensor
    weights: Tensor


class InstanceSelector(nn.Module):
    """Keep the k best features of each row, scored by a network.

    Cost: the scorer, one top-k per row, and a product.

    Args:
        scorer: a module from rows (…, n) to scores (…, n).
        k: how many features a row keeps; for methods with a real-valued budget it need not be an integer.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`; ``"gumbel"`` samples.
        temperature: > 0, in the units of the scores; anneal it with a
            :class:`khot.schedules.TemperatureScheduler`.
        learn_temperature: make the temperature a parameter.
        eval_mode: ``"hard"``: exactly k features in evaluation; ``"same"``: as in training, without noise.
        hard: exactly k features in training too, with the relaxation's gradient.
        options: further options of the method.

    Example:
        >>> selector = InstanceSelector(torch.nn.Linear(6, 6), k=2).eval()
        >>> values, weights = selector(torch.randn(4, 6))
        >>> weights.sum(-1)
        tensor([2., 2., 2., 2.], grad_fn=<SumBackward1>)

    Reference: Chen, Song, Wainwright & Jordan (2018), Learning to Explain (L2X), arXiv:1802.07814, for the
    setting.
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
        name = type(self).__name__
        check_tensor(name, "x", x)
        scores = self.scorer(x)
        check_tensor(name, "scores", scores)
        if scores.shape != x.shape:
            raise ValueError(
                f"{name}: scorer must give a score for each feature, {tuple(x.shape)}, "
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
            generator: source of a random method's noise.
        """
        name = type(self).__name__
        check_floating(name, "x", x)  # weights in another dtype would be cut to integers
        check_generator(name, generator)
        weights = self.topk(self.scores(x), mask, generator=generator).to(x.dtype)
        return SelectedFeatures(gated(x, weights), weights)

    @torch.no_grad()
    def selected(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The indices (…, k) of the features that each row keeps, best first; −1 if fewer are allowed."""
        return self.topk.selected(self.scores(x), mask)
