"""Image networks that select k tokens, and a plain vision transformer of equal size.

`reduce_tokens` makes any vision transformer keep only its most attended tokens.
"""

from khot.vision.checkpoints import load_network, save_network
from khot.vision.config import NetworkConfig, preset, preset_names
from khot.vision.models import TopKAttentionModel, TopKDynamicModel, from_config
from khot.vision.tokens import count_flops, reduce_tokens, restore_tokens
from khot.vision.topk_attention import TopKAttention
from khot.vision.topk_dynamic import TopKDynamicMixing
from khot.vision.vit import VisionTransformer

__all__ = [
    "NetworkConfig",
    "TopKAttention",
    "TopKAttentionModel",
    "TopKDynamicMixing",
    "TopKDynamicModel",
    "VisionTransformer",
    "count_flops",
    "from_config",
    "load_network",
    "preset",
    "preset_names",
    "reduce_tokens",
    "restore_tokens",
    "save_network",
]
