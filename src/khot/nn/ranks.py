"""The modules of the rank-based operators."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from khot.relaxations import pairwise_topk, softrank_topk
from khot.relaxations.arguments import check_temperature
from khot.relaxations.soft_rank import Regularization, check_regularization
from khot.relaxations.softrank import softrank_matrix

__all__ = ["DifferentiableTopK", "PairwiseTopK", "SoftrankTopK"]


class DifferentiableTopK(nn.Module):
    """Soft one-hot rows for the ranks 1 … k, with the signature of the topknets project.

    Row r of the result is 'the r-th best' and sums to one at every temperature. (The published code, which
    pairs 0-based positions with 1-based ranks, picks the ranks 1, 1, 2 for k = 3.)

    Args:
        k: how many rows.

    Example:
        >>> rows = DifferentiableTopK(2)(torch.tensor([[0.1, 0.9, 0.5]]), tau=0.05)
        >>> rows.shape, rows.argmax(-1).tolist()
        (torch.Size([1, 2, 3]), [[1, 2]])
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        _check_k("DifferentiableTopK", k)
        self.k = k

    def forward(self, scores: Tensor, tau: float | Tensor = 1.0) -> Tensor:
        """The rows (B, k, N) of scores (B, N); ``tau`` is the temperature of ranks and windows."""
        return softrank_matrix(scores, self.k, temperature=tau)

    def extra_repr(self) -> str:
        """Show k."""
        return f"k={self.k}"


class PairwiseTopK(nn.Module):
    """Pairwise top-k as a layer; see :func:`khot.pairwise_topk`.

    Args:
        k: how many.
        temperature: of the comparisons, or of the ranks.
        window: the width of the windows; by default the temperature.
        dim: the dimension that sums to ``k``.
        hard: exact hard top-k forward, soft gradient backward.

    Example:
        >>> PairwiseTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(
        self,
        k: int,
        *,
        temperature: float = 1.0,
        window: float | None = None,
        dim: int = -1,
        hard: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        _check_k(name, k)
        check_temperature(name, temperature)
        if window is not None:
            check_temperature(name, window)
        self.k = k
        self.temperature = temperature
        self.window = window
        self.dim = dim
        self.hard = hard

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return pairwise_topk(x, self.k, mask=mask, **self._settings())

    def _settings(self) -> dict[str, Any]:
        names = ("temperature", "window", "dim", "hard")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        """Show the settings."""
        return ", ".join([f"k={self.k}", *(f"{name}={value}" for name, value in self._settings().items())])


class SoftrankTopK(PairwiseTopK):
    """Soft-rank top-k as a layer; see :func:`khot.softrank_topk`.

    Args:
        k: how many.
        regularization: of the ranks, ``"l2"`` or ``"kl"``.
        settings: as :class:`PairwiseTopK`.

    Example:
        >>> SoftrankTopK(2, temperature=0.1)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: int, *, regularization: Regularization = "l2", **settings: Any) -> None:
        super().__init__(k, **settings)
        check_regularization("SoftrankTopK", regularization)
        self.regularization: Regularization = regularization

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights of ``x``; ``mask`` is True where an entry may be selected."""
        return softrank_topk(x, self.k, mask=mask, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "regularization": self.regularization}


def _check_k(name: str, k: int) -> None:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name}: k must be a positive integer, got {k}")
