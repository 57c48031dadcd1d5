"""Which tokens a head selects: soft one-hot rows with a learned temperature."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from khot.relaxations.facade import topk_matrix
from khot.vision.config import NetworkConfig

__all__ = ["TokenSelection"]

_LOWEST_TEMPERATURE = 1e-3


class TokenSelection(nn.Module):
    r"""Soft one-hot rows for the k best tokens of each head, with a learned temperature per head.

    .. math:: W = \operatorname{topk\_matrix}(s, k, \tau), \qquad
              \tau = \operatorname{softplus}(\theta) + 10^{-3}

    so that :math:`\tau` stays positive whatever :math:`\theta` becomes.

    Args:
        config: uses its ``heads``, ``k``, ``method`` and ``temperature``.

    Example:
        >>> select = TokenSelection(NetworkConfig(heads=2, k=3))
        >>> select(torch.randn(5, 2, 7)).shape
        torch.Size([5, 2, 3, 7])
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.k = config.k
        self.method = config.method
        start = max(config.temperature - _LOWEST_TEMPERATURE, _LOWEST_TEMPERATURE)
        inverse_softplus = start + math.log(-math.expm1(-start))
        self.raw_temperature = nn.Parameter(torch.full((config.heads,), inverse_softplus))

    @property
    def temperature(self) -> Tensor:
        """The temperature of each head, (heads,)."""
        return F.softplus(self.raw_temperature) + _LOWEST_TEMPERATURE

    def forward(self, scores: Tensor) -> Tensor:
        """Rows (B, heads, k, N) from scores (B, heads, N); computed at least in float32."""
        precise = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        temperature = self.temperature.to(precise.dtype).expand(precise.shape[:-1])
        return topk_matrix(precise, self.k, self.method, temperature=temperature).to(scores.dtype)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"k={self.k}, method={self.method!r}"
