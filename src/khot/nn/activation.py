"""An activation that keeps the k largest units and sets the others to 0."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from khot.nn._relaxed import RelaxedLayer
from khot.relaxations._plain_arguments import check_choice
from khot.relaxations.facade import topk
from khot.relaxations.registry import Relaxation

__all__ = ["TopKActivation"]

By = Literal["value", "magnitude"]


class TopKActivation(RelaxedLayer):
    r"""Keep the ``k`` largest units of each row and set the others to 0: :math:`x \odot y`, y the weights.

    The forward pass is that of k-winners-take-all and of TopK autoencoders. In the backward pass the gates
    have a gradient too, that of the relaxation, so units just below the cut can learn to pass.
    (``x * khot.hard_topk(x, k)`` has the same values without that gradient.) Put a ``ReLU`` before this layer
    if units must not be negative.

    Args:
        k: how many units to keep.
        method: the relaxation.
        hard: True keeps k units unchanged; False multiplies all units by their soft weights.
        by: rank units by ``"value"`` or by ``"magnitude"``.
        settings: further arguments of :class:`TopK`.

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
        """The k-hot weights by which ``x`` is multiplied."""
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

        ``generator`` is the source of a random method's noise.
        """
        gates = self.gates(x, mask, generator=generator)
        # What may not pass can be anything: 0 · inf is NaN.
        readable = x if mask is None else torch.where(mask, x, 0)
        return torch.where(readable.abs() == math.inf, torch.where(gates > 0, readable, 0), readable * gates)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"{super().extra_repr()}, by={self.by!r}"
