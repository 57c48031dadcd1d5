"""Networks for images that select: `NetworkConfig` describes them, `VisionTransformer` is the plain one."""

from khot.vision.config import NetworkConfig, preset, preset_names
from khot.vision.vit import VisionTransformer

__all__ = ["NetworkConfig", "VisionTransformer", "preset", "preset_names"]
