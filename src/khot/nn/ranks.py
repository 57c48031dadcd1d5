"""The layers of the rank-based operators."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from khot.nn._layer import whole_k
from khot.nn.topk import TopK
from khot.relaxations._arguments import check_temperature
from khot.relaxations.ranks.soft_rank import Regularization
from khot.relaxations.ranks.soft_rank_topk import soft_rank_matrix

__all__ = ["DifferentiableTopK", "PairwiseTopK", "SoftRankTopK"]


class DifferentiableTopK(nn.Module):
    """Soft one-hot rows for the ranks 1 … k, with the signature of the topknets project.

    Row r of the result selects the r-th best entry and sums to one at every temperature. (The published code
    pairs 0-based positions with 1-based ranks: for k = 3 it picks the ranks 1, 1, 2.)

    Args:
        k: the number of rows.

    Example:
        >>> rows = DifferentiableTopK(2)(torch.tensor([[0.1, 0.9, 0.5]]), tau=0.05)
        >>> rows.shape, rows.argmax(-1).tolist()
        (torch.Size([1, 2, 3]), [[1, 2]])
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = whole_k("DifferentiableTopK", k)

    def forward(self, scores: Tensor, tau: float | Tensor = 1.0) -> Tensor:
        """The rows (B, k, N) of scores (B, N); ``tau`` is the temperature of ranks and windows."""
        check_temperature("DifferentiableTopK", tau, "tau")
        return soft_rank_matrix(scores, self.k, temperature=tau)

    def extra_repr(self) -> str:
        """Show k."""
        return f"k={self.k}"


class PairwiseTopK(TopK):
    """Pairwise top-k as a layer; see :func:`khot.pairwise_topk`.

    Args:
        k: how many.
        window: the width of the windows; by default the temperature.
        settings: further arguments of :class:`TopK`; the temperature is that of the comparisons.

    Example:
        >>> PairwiseTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, *, window: float | None = None, **settings: Any) -> None:
        super().__init__(k, "pairwise", window=window, **settings)


class SoftRankTopK(TopK):
    """Soft-rank top-k as a layer; see :func:`khot.soft_rank_topk`.

    Args:
        k: how many.
        window: the width of the windows; by default the temperature.
        regularization: of the ranks, ``"l2"`` or ``"kl"``.
        settings: further arguments of :class:`TopK`; the temperature is that of the ranks.

    Example:
        >>> SoftRankTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(
        self, k: int, *, window: float | None = None, regularization: Regularization = "l2", **settings: Any
    ) -> None:
        super().__init__(k, "soft_rank", window=window, regularization=regularization, **settings)
