"""The modules of the random operators. They draw in training and in evaluation mode alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from khot.nn.operator import OperatorTopK
from khot.relaxations._noise import Noise
from khot.relaxations.facade import topk

__all__ = ["GumbelTopK", "PerturbedTopK"]


class _RandomTopK(OperatorTopK):
    """A layer whose call may name a generator."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        settings: dict[str, Any] = {**self.options, "generator": generator}
        return topk(
            x,
            self.k,
            self.method,
            temperature=self.temperature,
            hard=self.hard,
            dim=self.dim,
            mask=mask,
            **settings,
        )


class GumbelTopK(_RandomTopK):
    """Gumbel top-k as a layer; see :func:`khot.gumbel_topk`.

    Args:
        k: how many.
        temperature: > 0, of the relaxation.
        dim: the dimension that sums to ``k``.
        hard: the exact sample forward, the relaxed one's gradient backward.

    Example:
        >>> layer = GumbelTopK(2, hard=True)
        >>> layer(torch.zeros(3, 5), generator=torch.Generator().manual_seed(0)).sum(-1)
        tensor([2., 2., 2.])
    """

    method = "gumbel"

    def __init__(self, k: int, *, temperature: float = 1.0, dim: int = -1, hard: bool = False) -> None:
        super().__init__(k, temperature=temperature, dim=dim, hard=hard)


class PerturbedTopK(_RandomTopK):
    """Perturbed top-k as a layer; see :func:`khot.perturbed_topk`.

    Args:
        k: how many.
        samples: how many hard selections are averaged, at least 2.
        noise: ``"normal"`` or ``"gumbel"``.
        settings: ``temperature``, ``dim`` and ``hard``, as in the function.

    Example:
        >>> layer = PerturbedTopK(2, samples=64, temperature=0.1)
        >>> layer(torch.zeros(3, 5), generator=torch.Generator().manual_seed(0)).sum(-1)
        tensor([2., 2., 2.])
    """

    method = "perturbed"

    def __init__(self, k: int, *, samples: int = 100, noise: Noise = "normal", **settings: Any) -> None:
        super().__init__(k, samples=samples, noise=noise, **settings)
