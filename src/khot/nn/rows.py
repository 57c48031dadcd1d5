"""The layers of the operators that have one soft one-hot row per rank."""

from __future__ import annotations

from typing import Any

from khot.nn.topk import TopK
from khot.relaxations.rows._sorting_networks import Network
from khot.relaxations.rows.iterative import Variant as IterativeVariant
from khot.relaxations.rows.network import Distribution
from khot.relaxations.rows.sinkhorn import Variant as SinkhornVariant
from khot.relaxations.rows.successive_halving import Boost

__all__ = [
    "IterativeTopK",
    "NetworkTopK",
    "NeuralsortTopK",
    "SinkhornTopK",
    "SoftsortTopK",
    "SuccessiveHalvingTopK",
    "SuccessiveSoftmaxTopK",
]


class SoftsortTopK(TopK):
    """Softsort top-k as a layer; see :func:`khot.softsort_topk`.

    Args:
        k: how many.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> SoftsortTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, **settings: Any) -> None:
        super().__init__(k, "softsort", **settings)


class NeuralsortTopK(TopK):
    """Neuralsort top-k as a layer; see :func:`khot.neuralsort_topk`.

    Args:
        k: how many.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> NeuralsortTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, **settings: Any) -> None:
        super().__init__(k, "neuralsort", **settings)


class NetworkTopK(TopK):
    """Network top-k as a layer; see :func:`khot.network_topk`.

    Args:
        k: how many.
        network: ``"bitonic"`` or ``"odd_even"``.
        distribution: ``"logistic"`` or ``"cauchy"``.
        settings: further arguments of :class:`TopK`.

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
        super().__init__(k, "network", network=network, distribution=distribution, **settings)


class SuccessiveHalvingTopK(TopK):
    """Successive halving as a layer; see :func:`khot.successive_halving_topk`.

    Args:
        k: how many.
        boost: how the two entries of a pair share their slot, ``"softmax"`` or ``"base20"``.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> SuccessiveHalvingTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, *, boost: Boost = "softmax", **settings: Any) -> None:
        super().__init__(k, "successive_halving", boost=boost, **settings)


class IterativeTopK(TopK):
    """Iterative softmax as a layer; see :func:`khot.iterative_topk`.

    Args:
        k: how many.
        variant: ``"corrected"`` or ``"as-printed"``.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> IterativeTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, *, variant: IterativeVariant = "corrected", **settings: Any) -> None:
        super().__init__(k, "iterative", variant=variant, **settings)


class SuccessiveSoftmaxTopK(TopK):
    """Successive softmax as a layer; see :func:`khot.successive_softmax_topk`.

    Args:
        k: how many.
        capped: project weights above 1 on the capped simplex.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> SuccessiveSoftmaxTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, *, capped: bool = False, **settings: Any) -> None:
        super().__init__(k, "successive_softmax", capped=capped, **settings)


class SinkhornTopK(TopK):
    r"""Sinkhorn top-k as a layer; see :func:`khot.sinkhorn_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        variant: ``"plain"`` or ``"sorted"``, for which k must be an integer and cannot be learned.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> SinkhornTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: float, *, variant: SinkhornVariant = "plain", **settings: Any) -> None:
        super().__init__(k, "sinkhorn", variant=variant, **settings)
