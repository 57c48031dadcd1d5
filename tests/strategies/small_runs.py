"""Runs small enough for tests: which half of an image is bright, with noise."""

import torch

from khot.vision import NetworkConfig
from khot.vision.data import ImageTensors
from khot.vision.training import RunConfig, TrainSettings

__all__ = ["bright_halves", "small_run"]


def bright_halves(count: int = 48, seed: int = 0) -> ImageTensors:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 8, 8, generator=generator) / 2
    labels = torch.arange(count) % 2
    images[labels == 0, :, :, :4] += 0.5
    images[labels == 1, :, :, 4:] += 0.5
    return ImageTensors(images, labels, ("left", "right"))


def small_run(network: dict | None = None, **training) -> RunConfig:
    fields = {"image_size": 8, "channels": 1, "classes": 2, "patch_size": 4, "width": 8, "depth": 1, "k": 2}
    settings = {"data": "halves", "epochs": 2, "batch_size": 16, "warmup_epochs": 0.5, **training}
    return RunConfig(
        NetworkConfig.from_dict({"heads": 2, **fields, **(network or {})}), TrainSettings.from_dict(settings)
    )
