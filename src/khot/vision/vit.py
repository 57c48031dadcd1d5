"""A plain vision transformer, with the attribute names of timm, and the parts that all networks share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from khot.relaxations._plain_arguments import check_floating
from khot.vision.config import NetworkConfig

__all__ = ["Attention", "Block", "Mlp", "PatchEmbed", "VisionTransformer", "as_config", "init_weights"]

_NORM_EPS = 1e-6
# About the size of an embedded patch. With the usual 0.02 a small network spends its first epochs without
# knowing where its patches are.
_POSITION_STD = 0.3


class VisionTransformer(nn.Module):
    """A vision transformer with a class token: the plain network of equal size.

    The names of attributes, and so of weights, are those of timm. Cost: O(N²) per block for N tokens.

    Args:
        config: the configuration; its field ``model`` and the fields of the selection are ignored.

    Example:
        >>> config = NetworkConfig(image_size=8, channels=1, classes=10, patch_size=2, width=16, depth=1)
        >>> VisionTransformer(config)(torch.zeros(3, 1, 8, 8)).shape
        torch.Size([3, 10])

    Reference: Dosovitskiy et al. (2021), "An image is worth 16×16 words", ICLR.
    """

    num_prefix_tokens = 1

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        config = dataclasses.replace(config, model="vit")
        self.config = config
        self.embed_dim = config.width
        self.num_classes = config.classes
        self.patch_embed = PatchEmbed(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.pos_embed = nn.Parameter(torch.zeros(1, config.tokens + 1, config.width))
        self.pos_drop = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config, Attention(config)) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width, eps=_NORM_EPS)
        self.head = nn.Linear(config.width, config.classes)
        nn.init.normal_(self.cls_token, std=1e-6)
        init_weights(self, self.pos_embed)

    @classmethod
    def from_config(cls, config: NetworkConfig | Mapping[str, Any]) -> VisionTransformer:
        """Build the network from a configuration, or from its fields."""
        return cls(as_config(config))

    def forward_features(self, x: Tensor) -> Tensor:
        """All tokens (B, 1 + N, width) of images (B, C, H, W), normalised; the class token is the first."""
        tokens = self.patch_embed(x)
        tokens = torch.cat([self.cls_token.expand(len(tokens), -1, -1), tokens], dim=1)
        return self.norm(self.blocks(self.pos_drop(tokens + self.pos_embed)))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The logits of the class token; with ``pre_logits`` the class token itself."""
        pooled = x[:, 0]
        return pooled if pre_logits else self.head(pooled)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W)."""
        return self.forward_head(self.forward_features(x))


class PatchEmbed(nn.Module):
    """Patches of an image (B, C, H, W) as tokens (B, N, width), row by row."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.img_size = config.image_hw
        self.patch_size = config.patch_hw
        self.grid_size = config.grid
        self.num_patches = config.tokens
        self.proj = nn.Conv2d(config.channels, config.width, config.patch_hw, config.patch_hw)

    def forward(self, x: Tensor) -> Tensor:
        """The tokens."""
        check_floating("PatchEmbed", "images", x)
        expected = (self.proj.in_channels, *self.img_size)
        if x.ndim != 4 or x.shape[1:] != expected:
            raise ValueError(
                f"PatchEmbed: images must be (B, {', '.join(map(str, expected))}), got {tuple(x.shape)}"
            )
        return self.proj(x).flatten(2).transpose(1, 2).contiguous()


class Attention(nn.Module):
    """Multi-head softmax attention."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.num_heads = config.heads
        self.head_dim = config.width // config.heads
        self.scale = self.head_dim**-0.5
        self.fused_attn = True
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.q_norm = nn.Identity()
        self.k_norm = nn.Identity()
        self.proj = nn.Linear(config.width, config.width)
        self.proj_drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From tokens (B, N, width) to tokens of the same shape."""
        batch, count, width = x.shape
        qkv = self.qkv(x).reshape(batch, count, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attended = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, scale=self.scale)
        return self.proj_drop(self.proj(attended.transpose(1, 2).reshape(batch, count, width)))


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From tokens to tokens, each on its own."""
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class Block(nn.Module):
    """Mixing of tokens, then an MLP, each with a norm before it and a residual connection."""

    def __init__(self, config: NetworkConfig, attn: nn.Module) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=_NORM_EPS)
        self.attn = attn
        self.norm2 = nn.LayerNorm(config.width, eps=_NORM_EPS)
        self.mlp = Mlp(config.width, config.hidden, config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From tokens to tokens."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def init_weights(model: nn.Module, positions: Tensor) -> None:
    """Initialise: linear layers Glorot-uniform, biases 0, positions normal; everything else as torch does."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.normal_(positions, std=_POSITION_STD)


def as_config(config: NetworkConfig | Mapping[str, Any]) -> NetworkConfig:
    """The configuration, made from its fields if necessary."""
    return config if isinstance(config, NetworkConfig) else NetworkConfig.from_dict(config)
