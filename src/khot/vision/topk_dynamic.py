"""Mixing of tokens through k tokens that are selected for each image and read by all tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.vision.config import NetworkConfig
from khot.vision.token_selection import TokenSelection

__all__ = ["TopKDynamicMixing"]


class TopKDynamicMixing(nn.Module):
    r"""Mix tokens by a learned N × N map, then let each head gather its k best tokens, which all tokens read.

    .. math:: h = Px, \qquad h \leftarrow h + Mh, \qquad (v, s) = Lh, \qquad
              G = W(s)\,v, \qquad \text{out} = Q \operatorname{softmax}(v G^\top)\, G

    with the rows :math:`W` of :func:`khot.topk_matrix` of the scores s. M mixes the tokens of each channel,
    the other maps mix the channels of each token. Cost: O(N²) per channel for M, and O(N·k) for the selected
    tokens.

    Args:
        config: uses its ``width``, ``heads``, ``expansion``, ``dropout``, the number of tokens and the fields
            of the selection.

    Example:
        >>> config = NetworkConfig(image_size=6, patch_size=2, width=16, k=3, model="topk_dynamic")
        >>> TopKDynamicMixing(config)(torch.randn(5, 9, 16)).shape
        torch.Size([5, 9, 16])

    Reference: the topknets project.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        inner = config.expansion * config.width
        self.num_heads = config.heads
        self.head_dim = inner // config.heads
        self.expand = nn.Linear(config.width, inner)
        self.mix = nn.Linear(config.tokens, config.tokens)
        self.values_and_scores = nn.Linear(inner, config.heads * (self.head_dim + 1))
        self.select = TokenSelection(config)
        self.proj = nn.Linear(inner, config.width)
        self.proj_drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From tokens (B, N, width) to tokens of the same shape; the configuration fixes N."""
        batch, count, _ = x.shape
        expanded = self.expand(x)
        mixed = torch.baddbmm(
            expanded + self.mix.bias[:, None], self.mix.weight.expand(batch, count, count), expanded
        )
        heads = self.values_and_scores(mixed).reshape(batch, count, self.num_heads, self.head_dim + 1)
        v, scores = heads.permute(0, 2, 1, 3).split([self.head_dim, 1], dim=-1)
        v = v.contiguous()
        gathered = self.select(scores.squeeze(-1)) @ v
        # Of few keys, a softmax along rows of N tokens is faster than fused attention along rows of k.
        attention = (gathered @ v.transpose(-2, -1)).softmax(-2)
        read = attention.transpose(-2, -1) @ gathered
        return self.proj_drop(self.proj(read.transpose(1, 2).flatten(2)))
