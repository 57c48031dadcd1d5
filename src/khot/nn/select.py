"""Selecting vectors by their scores, as a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from khot.nn._evaluation import noise_free
from khot.nn._layer import SelectingLayer
from khot.relaxations._select import Selection, select
from khot.relaxations.hard import Order, check_order
from khot.relaxations.registry import Relaxation

__all__ = ["Select"]


class Select(SelectingLayer):
    """:func:`khot.select` as a layer.

    Args:
        k: how many vectors, an integer.
        method: the relaxation.
        hard: k unchanged vectors forward, the soft selection's gradient backward.
        order: the selected vectors by ``"score"`` or by ``"position"``.
        settings: of :class:`TopK`, but not ``learn_k``; in evaluation ``eval_mode="hard"`` gives unchanged
            vectors.

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
        super().__init__(k, method, hard=hard, **settings)
        if self.kappa is not None or self._k != int(self._k):
            raise ValueError(f"Select: k must be an integer that is not learned, got {k}")
        self.order: Order = order

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Selection:
        """Select among ``values`` (…, n, d) by ``scores`` (…, n); ``mask`` is True where that is allowed."""
        if not self._calibrated:
            self._first_batch(scores, mask)
        hard = self.hard or (self.eval_mode == "hard" and not self.training)
        method, options = self._relaxation, dict(self.options)
        if method.stochastic:
            if self.training or self.eval_mode == "random":
                options["generator"] = generator
            else:
                method, options = noise_free(method, options, scores.device)
        return select(
            values,
            scores,
            int(self._k),
            method,
            temperature=self._current_temperature(),
            hard=hard,
            order=self.order,
            dim=self.dim,
            mask=mask,
            largest=self.largest,
            at_most=self.at_most,
            **options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"{super().extra_repr()}, order={self.order!r}"
