"""The modules of the operators with a row for every rank."""

from __future__ import annotations

from typing import Any

from khot.nn.operator import OperatorTopK
from khot.relaxations.rows._sorting_networks import Network
from khot.relaxations.rows.network import Distribution

__all__ = ["NetworkTopK", "NeuralsortTopK", "SoftsortTopK"]


class SoftsortTopK(OperatorTopK):
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

    method = "softsort"

    def __init__(self, k: int, *, temperature: float = 1.0, dim: int = -1, hard: bool = False) -> None:
        super().__init__(k, temperature=temperature, dim=dim, hard=hard)


class NeuralsortTopK(OperatorTopK):
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

    method = "neuralsort"

    def __init__(self, k: int, *, temperature: float = 1.0, dim: int = -1, hard: bool = False) -> None:
        super().__init__(k, temperature=temperature, dim=dim, hard=hard)


class NetworkTopK(OperatorTopK):
    """Network top-k as a layer; see :func:`khot.network_topk`.

    Args:
        k: how many.
        network: ``"bitonic"`` or ``"odd_even"``.
        distribution: ``"logistic"`` or ``"cauchy"``.
        settings: ``temperature``, ``dim`` and ``hard``.

    Example:
        >>> NetworkTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    method = "network"

    def __init__(
        self,
        k: int,
        *,
        network: Network = "bitonic",
        distribution: Distribution = "logistic",
        **settings: Any,
    ) -> None:
        super().__init__(k, network=network, distribution=distribution, **settings)
