"""The networks: attention through k tokens, dynamic mixing through k tokens, and the plain transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from khot.vision.config import NetworkConfig
from khot.vision.token_selection import TokenSelection
from khot.vision.topk_attention import TopKAttention
from khot.vision.topk_dynamic import TopKDynamicMixing
from khot.vision.vit import Block, PatchEmbed, VisionTransformer, as_config, init_weights

__all__ = ["Network", "TopKAttentionModel", "TopKDynamicModel", "VisionTransformer", "from_config"]

_Selecting = TypeVar("_Selecting", bound="_SelectingNetwork")


class _SelectingNetwork(nn.Module):
    """Patches, learned positions, blocks, the mean of the tokens, a linear head."""

    name: ClassVar[str]
    mixing: ClassVar[Callable[[NetworkConfig], nn.Module]]
    num_prefix_tokens = 0

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        config = dataclasses.replace(config, model=self.name)
        self.config = config
        self.embed_dim = config.width
        self.num_classes = config.classes
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Parameter(torch.zeros(1, config.tokens, config.width))
        self.pos_drop = nn.Dropout(config.dropout)
        mixing = type(self).mixing
        self.blocks = nn.Sequential(*(Block(config, mixing(config)) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.classes)
        init_weights(self, self.pos_embed)

    @classmethod
    def from_config(cls: type[_Selecting], config: NetworkConfig | Mapping[str, Any]) -> _Selecting:
        """The network of a configuration, or of its fields."""
        return cls(as_config(config))

    def forward_features(self, x: Tensor) -> Tensor:
        """All tokens (B, N, width) of images (B, C, H, W), normalised."""
        return self.norm(self.blocks(self.pos_drop(self.patch_embed(x) + self.pos_embed)))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The logits of the tokens' mean; or the mean itself."""
        pooled = x.mean(1)
        return pooled if pre_logits else self.head(pooled)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W)."""
        return self.forward_head(self.forward_features(x))

    def selections(self, x: Tensor) -> list[Tensor]:
        """The rows (B, heads, k, N) that each block selects for images (B, C, H, W)."""
        rows: list[Tensor] = []

        def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
            rows.append(output)

        hooks = [
            module.register_forward_hook(keep)
            for module in self.modules()
            if isinstance(module, TokenSelection)
        ]
        try:
            self.forward_features(x)
        finally:
            for hook in hooks:
                hook.remove()
        return rows


class TopKAttentionModel(_SelectingNetwork):
    """A network whose blocks attend through the k tokens with the highest scores, see :class:`TopKAttention`.

    Cost: O(N·k) per block and head for N tokens, instead of O(N²).

    Args:
        config: the configuration; its field ``model`` is ignored.

    Example:
        >>> model = TopKAttentionModel.from_config({"image_size": 8, "patch_size": 2, "depth": 1, "k": 4})
        >>> model(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 1000])

    Reference: the topknets project.
    """

    name = "topk_attention"
    mixing = TopKAttention


class TopKDynamicModel(_SelectingNetwork):
    """A network whose blocks mix through k tokens selected for each image, see :class:`TopKDynamicMixing`.

    Cost: one N × N product per block for N tokens, and O(N·k) for the selected tokens.

    Args:
        config: the configuration; its field ``model`` is ignored.

    Example:
        >>> model = TopKDynamicModel.from_config({"image_size": 8, "patch_size": 2, "depth": 1, "k": 4})
        >>> model(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 1000])

    Reference: the topknets project.
    """

    name = "topk_dynamic"
    mixing = TopKDynamicMixing


Network = TopKAttentionModel | TopKDynamicModel | VisionTransformer

_NETWORKS: dict[str, Callable[[NetworkConfig], Network]] = {
    "topk_attention": TopKAttentionModel,
    "topk_dynamic": TopKDynamicModel,
    "vit": VisionTransformer,
}


def from_config(config: NetworkConfig | Mapping[str, Any]) -> Network:
    """Build the network that a configuration describes.

    Args:
        config: a configuration, or its fields.

    Returns:
        A :class:`TopKAttentionModel`, a :class:`TopKDynamicModel` or a :class:`VisionTransformer`.

    Example:
        >>> type(from_config({"model": "vit", "depth": 1})).__name__
        'VisionTransformer'
    """
    config = as_config(config)
    return _NETWORKS[config.model](config)
