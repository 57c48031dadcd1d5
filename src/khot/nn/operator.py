"""An operator as a layer: what all of them share that have nothing to learn but their input."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot.relaxations._arguments import check_temperature
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import get

__all__ = ["OperatorTopK", "check_count", "try_settings"]


class OperatorTopK(nn.Module):
    """An operator of the registry as a layer; a subclass names it, and documents its options.

    Args:
        k: how many.
        temperature: > 0; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        hard: exact hard top-k forward, soft gradient backward.
        options: of the operator.
    """

    method: ClassVar[str]

    def __init__(
        self, k: int, *, temperature: float = 1.0, dim: int = -1, hard: bool = False, **options: Any
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_count(name, k)
        check_temperature(name, temperature)
        checked_options(name, get(self.method), options)
        try_settings(self.method, temperature=temperature, **options)
        self.k = k
        self.temperature = temperature
        self.dim = dim
        self.hard = hard
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return topk(
            x,
            self.k,
            self.method,
            temperature=self.temperature,
            hard=self.hard,
            dim=self.dim,
            mask=mask,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        shown = {"temperature": self.temperature, "dim": self.dim, "hard": self.hard, **self.options}
        return ", ".join([f"k={self.k}", *(f"{name}={value!r}" for name, value in shown.items())])


def check_count(name: str, k: int) -> None:
    """Raise unless k is a positive integer."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name}: k must be a positive integer, got {k}")


def try_settings(method: str, **settings: Any) -> None:
    """Call the operator once, on two scores: a wrong setting is an error now and not in the first batch."""
    spec = get(method)
    if spec.stochastic:
        settings["generator"] = torch.Generator()
    spec.weights(torch.zeros(2), 1, **settings)
