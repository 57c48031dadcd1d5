"""Which tokens a head selects: soft one-hot rows by a learned temperature."""

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
    r"""Rows 'the r-th best token' of the scores of each head, at a temperature that each head learns.

    .. math:: W = \operatorname{topk\_matrix}(s, k, \tau), \qquad
              \tau = \operatorname{softplus}(\theta) + 10^{-3}

    so that :math:`\tau` stays positive whatever :math:`\theta` becomes.

    Args:
        config: its ``heads``, ``k``, ``method`` and ``temperature`` are read.

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
        """Rows (B, heads, k, N) of scores (B, heads, N); computed in float32 at least."""
        precise = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        temperature = self.temperature.to(precise.dtype).expand(precise.shape[:-1])
        return topk_matrix(precise, self.k, self.method, temperature=temperature).to(scores.dtype)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"k={self.k}, method={self.method!r}"
