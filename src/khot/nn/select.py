"""Selecting vectors by their scores, as a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from khot.nn._layer import whole_k
from khot.nn._relaxed import RelaxedLayer
from khot.relaxations._select import Selection, select
from khot.relaxations.hard import Order, check_order
from khot.relaxations.registry import Relaxation

__all__ = ["Select"]


class Select(RelaxedLayer):
    """:func:`khot.select` as a layer.

    Args:
        k: how many vectors, an integer.
        method: the relaxation.
        hard: k unchanged vectors forward, the gradient of the soft selection backward.
        order: order the selected vectors by ``"score"`` or by ``"position"``.
        settings: further arguments of :class:`TopK`, except ``learn_k``. With ``eval_mode="hard"`` the
            vectors are unchanged in evaluation.

    Example:
        >>> values, scores = torch.eye(3), torch.tensor([0.1, 0.9, 0.5])
        >>> Select(2)(values, scores).indices
        tensor([1, 2])
    """

    def __init__(
        self,
        k: int,
        method: str | Relaxation = "sigmoid",
        *,
        hard: bool = True,
        order: Order = "score",
        **settings: Any,
    ) -> None:
        check_order("Select", order)
        if settings.get("learn_k"):
            raise ValueError("Select: k cannot be learned, the result has k places; use khot.nn.TopK")
        super().__init__(whole_k("Select", k), method, hard=hard, **settings)
        self.order: Order = order

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Selection:
        """Select among ``values`` (…, n, d) by ``scores`` (…, n); ``mask`` is True where that is allowed.

        ``generator`` is the source of a random method's noise.
        """
        method, settings = self._now(scores, mask, generator)
        return select(values, scores, int(self._k), method, order=self.order, **settings)

    def _tried(self, scores: Tensor, k: float | Tensor, options: dict[str, Any]) -> Tensor:
        return select(scores.unsqueeze(-1), scores, round(float(k)), self._relaxation, **options).weights

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"{super().extra_repr()}, order={self.order!r}"
