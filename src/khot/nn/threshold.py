"""The modules of the threshold family, with temperature and budget that can be learned."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from khot.relaxations import laplace_topk, normal_topk, sigmoid_topk, sparse_topk, straight_through
from khot.relaxations.threshold.sparse import sparse_gate

__all__ = ["LaplaceTopK", "NormalTopK", "SigmoidTopK", "SparseTopK"]


class _ThresholdTopK(nn.Module, ABC):
    """A layer of the threshold family; see :class:`SigmoidTopK` for the settings."""

    kappa: nn.Parameter | None
    log_temperature: nn.Parameter | None

    def __init__(
        self,
        k: float,
        *,
        temperature: float = 1.0,
        dim: int = -1,
        hard: bool = False,
        learn_temperature: bool = False,
        learn_k: bool = False,
        k_max: float | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not 0 <= k < math.inf:
            raise ValueError(f"{name}: k must be finite and not negative, got {k}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"{name}: temperature must be positive and finite, got {temperature}")
        if learn_k and (k_max is None or not 0 < k < k_max < math.inf):
            raise ValueError(f"{name}: learn_k=True needs 0 < k < k_max, got k = {k}, k_max = {k_max}")
        if k_max is not None and not learn_k:
            raise ValueError(f"{name}: k_max = {k_max} has no effect without learn_k=True")
        self.dim = dim
        self.hard = hard
        self.k_max = k_max
        self._k = k
        self._temperature = temperature
        self.kappa = self.log_temperature = None
        if learn_k and k_max is not None:
            self.kappa = nn.Parameter(torch.tensor(math.log(k) - math.log(k_max - k)))
        if learn_temperature:
            self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def k(self) -> float | Tensor:
        """The budget: a number, or a tensor with a gradient if it is learned."""
        if self.kappa is None or self.k_max is None:
            return self._k
        # σ(κ) in a form whose gradient does not vanish before κ is very large, kept off the ends of the
        # range, where the budget would have no gradient and stay for ever.
        share = torch.exp(-nn.functional.softplus(-self.kappa))
        return self.k_max * straight_through(share, share.clamp(1e-6, 1 - 1e-6))

    @property
    def temperature(self) -> float | Tensor:
        """The temperature: a number, or a tensor with a gradient if it is learned."""
        return self._temperature if self.log_temperature is None else self.log_temperature.exp()

    @temperature.setter
    def temperature(self, value: float) -> None:
        if not 0 < value < math.inf:
            raise ValueError(f"{type(self).__name__}: temperature must be positive and finite, got {value}")
        self._temperature = value
        if self.log_temperature is not None:
            with torch.no_grad():
                self.log_temperature.fill_(math.log(value))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the k-hot weights of ``x``; ``mask`` is True where an entry may be selected."""
        return self._weights(x, self.k, mask)

    @abstractmethod
    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        """The weights with the settings of this layer."""

    def extra_repr(self) -> str:
        """Show the settings, and which of them are learned."""
        k = f"k={_value(self.k):.4g}" + (
            f" (learned, k_max={self.k_max:g})" if self.kappa is not None else ""
        )
        temperature = f"temperature={_value(self.temperature):.4g}"
        temperature += " (learned)" if self.log_temperature is not None else ""
        return f"{k}, {temperature}, dim={self.dim}, hard={self.hard}"


class SigmoidTopK(_ThresholdTopK):
    r"""Sigmoid top-k as a layer; see :func:`khot.sigmoid_topk`.

    A learned temperature is kept positive as :math:`\tau = e^\theta`; a learned budget stays in
    (0, k_max) as :math:`k = k_{\max}\,\sigma(\kappa)`.

    Args:
        k: the budget, or its starting value if it is learned.
        temperature: the temperature, or its starting value if it is learned.
        dim: the dimension that sums to ``k``.
        hard: exact hard top-k forward, soft gradient backward.
        learn_temperature: make the temperature a parameter.
        learn_k: make the budget a parameter; needs ``k_max``.
        k_max: the largest budget that can be learned, > k.

    Example:
        >>> layer = SigmoidTopK(2, temperature=0.5)
        >>> layer(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
        >>> learned = SigmoidTopK(2, learn_k=True, k_max=4, learn_temperature=True)
        >>> sorted(name for name, _ in learned.named_parameters())
        ['kappa', 'log_temperature']
    """

    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        return sigmoid_topk(x, k, temperature=self.temperature, dim=self.dim, mask=mask, hard=self.hard)


class LaplaceTopK(_ThresholdTopK):
    r"""Laplace top-k as a layer; see :func:`khot.laplace_topk`.

    Arguments as :class:`SigmoidTopK`.

    Example:
        >>> LaplaceTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        return laplace_topk(x, k, temperature=self.temperature, dim=self.dim, mask=mask, hard=self.hard)


class NormalTopK(_ThresholdTopK):
    r"""Normal top-k as a layer; see :func:`khot.normal_topk`.

    Arguments as :class:`SigmoidTopK`.

    Example:
        >>> NormalTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        return normal_topk(x, k, temperature=self.temperature, dim=self.dim, mask=mask, hard=self.hard)


class SparseTopK(_ThresholdTopK):
    r"""Sparse top-k as a layer; see :func:`khot.sparse_topk`.

    Arguments as :class:`SigmoidTopK`, and:

    Args:
        norm: q in (1, 2]; 2 is the Euclidean projection on the capped simplex.

    Example:
        >>> SparseTopK(2, norm=1.5)
        SparseTopK(k=2, temperature=1, dim=-1, hard=False, norm=1.5)
    """

    def __init__(self, k: float, *, norm: float = 2.0, **settings: Any) -> None:
        sparse_gate("SparseTopK", norm)
        super().__init__(k, **settings)
        self.norm = norm

    def _weights(self, x: Tensor, k: float | Tensor, mask: Tensor | None) -> Tensor:
        return sparse_topk(
            x, k, norm=self.norm, temperature=self.temperature, dim=self.dim, mask=mask, hard=self.hard
        )

    def extra_repr(self) -> str:
        """Show the settings, and which of them are learned."""
        return f"{super().extra_repr()}, norm={self.norm:g}"


def _value(number: float | Tensor) -> float:
    return number.item() if isinstance(number, Tensor) else number
