"""Attention through the k tokens with the highest scores: gather them, then scatter them back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.vision.config import NetworkConfig
from khot.vision.token_selection import TokenSelection

__all__ = ["TopKAttention"]


class TopKAttention(nn.Module):
    r"""Each head gathers its k best tokens and scatters them back to their positions.

    .. math:: s_i = \frac{\langle q_i, k_i\rangle}{\sqrt d}, \qquad Z = W(s)\,v, \qquad
              Y = W(s)^\top Z, \qquad \text{out} = \operatorname{proj}(Y + v)

    with the rows :math:`W` of :func:`khot.topk_matrix` of the scores s. It has the parameters of softmax
    attention plus a temperature for each head. Cost: O(N·k) instead of O(N²).

    Args:
        config: uses its ``width``, ``heads``, ``dropout`` and the fields of the selection.

    Example:
        >>> layer = TopKAttention(NetworkConfig(width=16, heads=2, k=3))
        >>> layer(torch.randn(5, 9, 16)).shape
        torch.Size([5, 9, 16])

    Reference: the topknets project.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.num_heads = config.heads
        self.head_dim = config.width // config.heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.select = TokenSelection(config)
        self.proj = nn.Linear(config.width, config.width)
        self.proj_drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From tokens (B, N, width) to tokens of the same shape."""
        batch, count, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, count, 3, self.num_heads, self.head_dim).unbind(2)
        rows = self.select((q * k).sum(-1).transpose(1, 2) * self.scale).flatten(0, 1)
        v = v.transpose(1, 2).reshape(batch * self.num_heads, count, self.head_dim)
        mixed = torch.baddbmm(v, rows.transpose(1, 2), rows @ v).view(
            batch, self.num_heads, count, self.head_dim
        )
        return self.proj_drop(self.proj(mixed.transpose(1, 2).reshape(batch, count, width)))
