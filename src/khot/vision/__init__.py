"""Networks for images that select: `NetworkConfig` describes them, `VisionTransformer` is the plain one.

`reduce_tokens` lets any vision transformer keep only its most attended tokens.
"""

from khot.vision.config import NetworkConfig, preset, preset_names
from khot.vision.tokens import TokenReduction, count_flops, reduce_tokens, restore_tokens
from khot.vision.vit import VisionTransformer

__all__ = [
    "NetworkConfig",
    "TokenReduction",
    "VisionTransformer",
    "count_flops",
    "preset",
    "preset_names",
    "reduce_tokens",
    "restore_tokens",
]
