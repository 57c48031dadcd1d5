"""Networks for images that select k tokens, beside a plain vision transformer of equal size."""

from khot.vision.checkpoints import load_network, save_network
from khot.vision.config import NetworkConfig, preset, preset_names
from khot.vision.models import TopKAttentionModel, TopKDynamicModel, from_config
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
    "from_config",
    "load_network",
    "preset",
    "preset_names",
    "save_network",
]
