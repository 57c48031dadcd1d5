"""Selecting vectors by their scores, as a layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from khot.nn.operator import check_count, try_settings
from khot.relaxations._select import Selection, select
from khot.relaxations.facade import checked_options
from khot.relaxations.hard import Order, check_order
from khot.relaxations.registry import get

__all__ = ["Select"]


class Select(nn.Module):
    """:func:`khot.select` as a layer; arguments as there.

    Args:
        k: how many vectors.
        method: the relaxation.
        temperature: > 0.
        hard: k unchanged vectors forward, the soft selection's gradient backward.
        order: the selected vectors by ``"score"`` or by ``"position"``.
        options: of the method.

    Example:
        >>> values, scores = torch.eye(3), torch.tensor([0.1, 0.9, 0.5])
        >>> Select(2)(values, scores).indices
        tensor([1, 2])
    """

    def __init__(
        self,
        k: int,
        method: str = "sigmoid",
        *,
        temperature: float = 1.0,
        hard: bool = True,
        order: Order = "score",
        **options: Any,
    ) -> None:
        super().__init__()
        check_count("Select", k)
        spec = get(method)
        checked_options("Select", spec, options, spec.matrix)
        check_order("Select", order)
        try_settings(method, temperature=temperature, **options)
        self.k = k
        self.method = method
        self.temperature = temperature
        self.hard = hard
        self.order: Order = order
        self.options = options

    def forward(self, values: Tensor, scores: Tensor, mask: Tensor | None = None) -> Selection:
        """Select among ``values`` (…, n, d) by ``scores`` (…, n); ``mask`` is True where that is allowed."""
        return select(
            values,
            scores,
            self.k,
            self.method,
            temperature=self.temperature,
            mask=mask,
            hard=self.hard,
            order=self.order,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return (
            f"k={self.k}, method={self.method!r}, temperature={self.temperature:g}, "
            f"hard={self.hard}, order={self.order!r}{options}"
        )
