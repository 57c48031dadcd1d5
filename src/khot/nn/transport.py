"""The module of entropic transport."""

from __future__ import annotations

from typing import Any, get_args

from torch import Tensor

from khot.nn.threshold import SigmoidTopK
from khot.relaxations import sinkhorn_topk
from khot.relaxations._arguments import check_choice
from khot.relaxations.rows.sinkhorn import Variant

__all__ = ["SinkhornTopK"]


class SinkhornTopK(SigmoidTopK):
    r"""Sinkhorn top-k as a layer; see :func:`khot.sinkhorn_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        variant: ``"plain"`` or ``"sorted"``, for which k must be an integer and cannot be learned.
        settings: as :class:`SigmoidTopK`.

    Example:
        >>> SinkhornTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: float, *, variant: Variant = "plain", **settings: Any) -> None:
        super().__init__(k, **settings)
        check_choice("SinkhornTopK", "variant", variant, get_args(Variant))
        if variant == "sorted" and (self.kappa is not None or k != int(k)):
            learned = " that is learned" if self.kappa is not None else ""
            raise ValueError(f"SinkhornTopK: variant='sorted' needs an integer k, got k = {k}{learned}")
        self.variant: Variant = variant

    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        return sinkhorn_topk(
            x,
            k,
            temperature=self.temperature,
            variant=self.variant,
            dim=self.dim,
            mask=mask,
            hard=self.hard,
        )

    def extra_repr(self) -> str:
        """Show the settings, and which of them are learned."""
        return f"{super().extra_repr()}, variant={self.variant}"
