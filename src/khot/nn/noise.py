"""The modules of the random operators. They draw in training and in evaluation mode alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from khot.relaxations import gumbel_topk, perturbed_topk
from khot.relaxations.arguments import check_temperature
from khot.relaxations.noise import Noise, check_noise
from khot.relaxations.perturbed import check_samples

__all__ = ["GumbelTopK", "PerturbedTopK"]


class GumbelTopK(nn.Module):
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

    def __init__(self, k: int, *, temperature: float = 1.0, dim: int = -1, hard: bool = False) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name}: k must be a positive integer, got {k}")
        check_temperature(name, temperature)
        self.k = k
        self.temperature = temperature
        self.dim = dim
        self.hard = hard

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return gumbel_topk(x, self.k, mask=mask, generator=generator, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("temperature", "dim", "hard")}

    def extra_repr(self) -> str:
        """Show the settings."""
        return ", ".join([f"k={self.k}", *(f"{name}={value}" for name, value in self._settings().items())])


class PerturbedTopK(GumbelTopK):
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

    def __init__(self, k: int, *, samples: int = 100, noise: Noise = "normal", **settings: Any) -> None:
        super().__init__(k, **settings)
        check_samples("PerturbedTopK", samples)
        check_noise("PerturbedTopK", noise)
        self.samples = samples
        self.noise: Noise = noise

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return perturbed_topk(x, self.k, mask=mask, generator=generator, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "samples": self.samples, "noise": self.noise}
