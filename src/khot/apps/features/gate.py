r"""A gate over features: it learns, together with a network, which k of n inputs the network sees.

    x ↦ x ⊙ y,   y = top-k weights of n free scores at temperature τ,

so :math:`\sum_i y_i = k` at every step, and as τ → 0 exactly k features pass. Start with a soft gate and let
τ fall while the network trains, so that features compete before only k of them are left.
Cost: one top-k of n scores, and one product with the input. Reference: Wijk, Vinuesa & Azizpour (2025).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from khot.apps.features._product import gated
from khot.nn import TopK
from khot.nn._evaluation import EvalMode
from khot.nn._layer import whole_k
from khot.relaxations._plain_arguments import check_floating, check_generator, check_integer, check_tensor
from khot.relaxations.registry import Relaxation

__all__ = ["FeatureGate"]


class FeatureGate(nn.Module):
    """Multiply features by learned k-hot weights.

    A :class:`khot.schedules.TemperatureScheduler` can anneal the temperature, as for other layers. Cost: one
    top-k of n scores, and a product with the input.

    Args:
        num_features: n, the length of the last dimension of the input.
        k: how many features pass, an integer, 0 ≤ k ≤ n.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, in the units of the scores, which start at zero.
        learn_temperature: make the temperature a parameter.
        eval_mode: ``"hard"``: in evaluation exactly k features pass, unchanged; ``"same"``: as in training,
            without noise.
        hard: exactly k features in training too, with the relaxation's gradient.
        mask: boolean (n,), False for features that must not pass, such as constant ones.
        device: device of the scores.
        dtype: dtype of the scores.
        options: further options of the method.

    Example:
        >>> gate = FeatureGate(5, k=2)
        >>> gate(torch.ones(1, 5))
        tensor([[0.4000, 0.4000, 0.4000, 0.4000, 0.4000]], grad_fn=<MulBackward0>)
        >>> gate.eval()(torch.ones(1, 5)), gate.selected()
        (tensor([[1., 1., 0., 0., 0.]], grad_fn=<MulBackward0>), tensor([0, 1]))

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """

    mask: Tensor | None

    def __init__(
        self,
        num_features: int,
        k: int,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 1.0,
        learn_temperature: bool = False,
        eval_mode: EvalMode = "hard",
        hard: bool = False,
        mask: Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_integer(name, "num_features", num_features)
        if whole_k(name, k) > num_features:
            raise ValueError(f"{name}: k must be at most num_features = {num_features}, got {k}")
        if mask is not None:
            check_tensor(name, "mask", mask)
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (num_features,)):
            raise ValueError(
                f"{name}: mask must be boolean of shape ({num_features},), got {mask.dtype} of shape "
                f"{tuple(mask.shape)}"
            )
        self.topk = TopK(
            k,
            method,
            temperature=temperature,
            learn_temperature=learn_temperature,
            eval_mode=eval_mode,
            hard=hard,
            **options,
        )
        self.scores = nn.Parameter(torch.zeros(num_features, device=device, dtype=dtype))
        self.register_buffer("mask", None if mask is None else mask.to(self.scores.device))

    def reset_parameters(self) -> None:
        """Reset all scores to zero."""
        nn.init.zeros_(self.scores)

    @property
    def k(self) -> int:
        """How many features pass."""
        return int(self.topk.k)

    def weights(self, generator: torch.Generator | None = None) -> Tensor:
        """The current weights (n,), which sum to k: soft in training; in evaluation see ``eval_mode``."""
        check_generator(type(self).__name__, generator)
        return self.topk(self.scores, self.mask, generator=generator)

    def selected(self) -> Tensor:
        """The increasing indices of the selected features: k, or all that the mask allows."""
        found = self.topk.selected(self.scores.detach(), self.mask)
        return found[found >= 0].sort().values

    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Features (…, n) times their weights; ``generator`` is the source of a random method's noise."""
        check_floating(type(self).__name__, "x", x)
        if x.shape[-1:] != self.scores.shape:
            raise ValueError(
                f"{type(self).__name__}: x must have the last dimension {len(self.scores)}, "
                f"got the shape {tuple(x.shape)}"
            )
        return gated(x, self.weights(generator).to(x.dtype))

    def extra_repr(self) -> str:
        """Show the number of features."""
        return f"num_features={len(self.scores)}"
