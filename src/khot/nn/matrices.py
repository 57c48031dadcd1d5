"""The modules of the operators with a row for every rank."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from khot.relaxations import network_topk, neuralsort_topk, softsort_topk
from khot.relaxations.arguments import check_temperature
from khot.relaxations.network import Distribution, check_distribution
from khot.relaxations.sorting_networks import Network, check_network

__all__ = ["NetworkTopK", "NeuralsortTopK", "SoftsortTopK"]


class SoftsortTopK(nn.Module):
    """Softsort top-k as a layer; see :func:`khot.softsort_topk`.

    Args:
        k: how many.
        temperature: > 0; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        hard: exact hard top-k forward, soft gradient backward.

    Example:
        >>> SoftsortTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return softsort_topk(x, self.k, mask=mask, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("temperature", "dim", "hard")}

    def extra_repr(self) -> str:
        """Show the settings."""
        return ", ".join([f"k={self.k}", *(f"{name}={value}" for name, value in self._settings().items())])


class NeuralsortTopK(SoftsortTopK):
    """Neuralsort top-k as a layer; see :func:`khot.neuralsort_topk`.

    Args:
        k: how many.
        temperature: > 0; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        hard: exact hard top-k forward, soft gradient backward.

    Example:
        >>> NeuralsortTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return neuralsort_topk(x, self.k, mask=mask, **self._settings())


class NetworkTopK(SoftsortTopK):
    """Network top-k as a layer; see :func:`khot.network_topk`.

    Args:
        k: how many.
        network: ``"bitonic"`` or ``"odd_even"``.
        distribution: ``"logistic"`` or ``"cauchy"``.
        settings: as :class:`SoftsortTopK`.

    Example:
        >>> NetworkTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(
        self,
        k: int,
        *,
        network: Network = "bitonic",
        distribution: Distribution = "logistic",
        **settings: Any,
    ) -> None:
        super().__init__(k, **settings)
        check_network("NetworkTopK", network)
        check_distribution("NetworkTopK", distribution)
        self.network: Network = network
        self.distribution: Distribution = distribution

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return network_topk(x, self.k, mask=mask, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "network": self.network, "distribution": self.distribution}
