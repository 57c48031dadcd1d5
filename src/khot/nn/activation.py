"""An activation that lets k of its units pass."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from khot.nn._relaxed import RelaxedLayer
from khot.relaxations._arguments import check_choice
from khot.relaxations.facade import topk
from khot.relaxations.registry import Relaxation

__all__ = ["TopKActivation"]

By = Literal["value", "magnitude"]


class TopKActivation(RelaxedLayer):
    r"""The ``k`` largest of each row unchanged, all others 0: :math:`x \odot y`, with a method's weights.

    Forward as in k-winners-take-all and TopK autoencoders; backward the gates learn too, by the gradient of
    the relaxation, so that units near the cut hear of it. (``x * khot.hard_topk(x, k)`` is the same without
    that.) Put a ``ReLU`` before it where units must not be negative.

    Args:
        k: how many.
        method: the relaxation.
        hard: k units unchanged forward; False multiplies all units by their soft weights.
        by: which are the largest, by ``"value"`` or by ``"magnitude"``.
        settings: of :class:`TopK`.

    Example:
        >>> TopKActivation(2)(torch.tensor([3.0, 0.5, 2.0, 1.0])).tolist()
        [3.0, 0.0, 2.0, 0.0]
        >>> TopKActivation(2, by="magnitude")(torch.tensor([3.0, -4.0, 2.0, 1.0])).tolist()
        [3.0, -4.0, 0.0, 0.0]
    """

    def __init__(
        self,
        k: float,
        method: str | Relaxation = "sigmoid",
        *,
        hard: bool = True,
        by: By = "value",
        **settings: Any,
    ) -> None:
        check_choice("TopKActivation", "by", by, get_args(By))
        super().__init__(k, method, hard=hard, **settings)
        self.by: By = by

    def gates(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """What ``x`` is multiplied by: its k-hot weights."""
        scores = x.abs() if self.by == "magnitude" else x
        method, settings = self._now(scores, mask, generator)
        k = self.k
        if settings["hard"] and isinstance(k, float):  # as in TopK: a tensor is rounded, a number not
            k = torch.tensor(k, device=scores.device)
        return topk(scores, k, method, **settings)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """``x`` with all but its k largest entries 0; ``mask`` is True where an entry may pass.

        ``generator`` is where the noise of a random method comes from.
        """
        gates = self.gates(x, mask, generator=generator)
        # What may not pass can be anything: 0 · inf is NaN.
        readable = x if mask is None else torch.where(mask, x, 0)
        return torch.where(readable.abs() == math.inf, torch.where(gates > 0, readable, 0), readable * gates)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"{super().extra_repr()}, by={self.by!r}"
