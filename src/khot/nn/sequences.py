"""The modules of the operators that select in rounds."""

from __future__ import annotations

from typing import Any

from khot.nn.operator import OperatorTopK
from khot.relaxations.rows.iterative import Variant
from khot.relaxations.rows.successive_halving import Boost

__all__ = ["IterativeTopK", "SuccessiveHalvingTopK", "SuccessiveSoftmaxTopK"]


class SuccessiveHalvingTopK(OperatorTopK):
    """Successive halving as a layer; see :func:`khot.successive_halving_topk`.

    Args:
        k: how many.
        boost: how a pair shares its slot, ``"softmax"`` or ``"base20"``.
        settings: ``temperature``, ``dim`` and ``hard``.

    Example:
        >>> SuccessiveHalvingTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    method = "successive_halving"

    def __init__(self, k: int, *, boost: Boost = "softmax", **settings: Any) -> None:
        super().__init__(k, boost=boost, **settings)


class IterativeTopK(OperatorTopK):
    """Iterative softmax as a layer; see :func:`khot.iterative_topk`.

    Args:
        k: how many.
        variant: ``"corrected"`` or ``"as-printed"``.
        settings: ``temperature``, ``dim`` and ``hard``.

    Example:
        >>> IterativeTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    method = "iterative"

    def __init__(self, k: int, *, variant: Variant = "corrected", **settings: Any) -> None:
        super().__init__(k, variant=variant, **settings)


class SuccessiveSoftmaxTopK(OperatorTopK):
    """Successive softmax as a layer; see :func:`khot.successive_softmax_topk`.

    Args:
        k: how many.
        capped: project weights above 1 on the capped simplex.
        settings: ``temperature``, ``dim`` and ``hard``.

    Example:
        >>> SuccessiveSoftmaxTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    method = "successive_softmax"

    def __init__(self, k: int, *, capped: bool = False, **settings: Any) -> None:
        super().__init__(k, capped=capped, **settings)
