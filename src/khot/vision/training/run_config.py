"""The configuration of a run: a network and training settings, from a preset or a JSON file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from khot.files.untrusted import read_object
from khot.vision.config import NetworkConfig, preset
from khot.vision.data import FolderImages, ImageTensors
from khot.vision.training.settings import TrainSettings

__all__ = ["RunConfig", "run_preset"]

_IMAGENET: dict[str, Any] = {
    "data": "imagenet",
    "epochs": 300,
    "batch_size": 1024,
    "learning_rate": 1e-3,
    "warmup_epochs": 20.0,
    "mixup": 0.8,
    "bfloat16": True,
    "checkpoint_steps": 200,
}
_TRAINING: dict[str, dict[str, Any]] = {
    "digits": {"data": "digits", "epochs": 60},
    "mnist": {
        "data": "mnist",
        "epochs": 10,
        "batch_size": 128,
        "warmup_epochs": 1.0,
        "checkpoint_steps": 100,
    },
    "imagenet-tiny": _IMAGENET,
    "imagenet-small": _IMAGENET,
}


@dataclass(frozen=True)
class RunConfig:
    """A network configuration and training settings.

    Args:
        network: the configuration of the network.
        training: the training settings.

    Example:
        >>> run_preset("digits").training.data
        'digits'
    """

    network: NetworkConfig
    training: TrainSettings

    def to_dict(self) -> dict[str, Any]:
        """Both parts as a dictionary for JSON."""
        return {"network": self.network.to_dict(), "training": dataclasses.asdict(self.training)}

    @classmethod
    def from_json(cls, path: str | Path) -> RunConfig:
        """A run from a JSON file: an object with the objects ``network`` and ``training``."""
        parts = read_object(path, "RunConfig")
        if set(parts) != {"network", "training"}:
            raise ValueError(f"RunConfig: {path} must hold an object with 'network' and 'training'")
        return cls(NetworkConfig.from_dict(parts["network"]), TrainSettings.from_dict(parts["training"]))

    def changed(self, network: dict[str, Any], training: dict[str, Any]) -> RunConfig:
        """A copy of the run with some fields changed."""
        return RunConfig(
            NetworkConfig.from_dict({**self.network.to_dict(), **network}),
            TrainSettings.from_dict({**dataclasses.asdict(self.training), **training}),
        )

    def fitted(self, data: ImageTensors | FolderImages) -> RunConfig:
        """A copy of the run with the image size, channels and number of classes of the data."""
        channels, height, width = data.image_shape
        shape = {"image_size": (height, width), "channels": channels, "classes": len(data.classes)}
        return self.changed(shape, {})

    def check_fits(self, data: ImageTensors | FolderImages) -> None:
        """Raise if the network expects other images or another number of classes."""
        found = self.fitted(data).network
        for field in ("image_size", "channels", "classes"):
            ours, theirs = getattr(self.network, field), getattr(found, field)
            if ours != theirs:
                raise ValueError(f"train: network.{field} is {ours}, but {self.training.data} has {theirs}")


def run_preset(name: str) -> RunConfig:
    """The run of a preset.

    Args:
        name: one of :func:`khot.vision.preset_names`.

    Returns:
        The :class:`RunConfig`: its network, and training settings that suit its data.

    Example:
        >>> run_preset("mnist").training.epochs
        10
    """
    return RunConfig(preset(name), TrainSettings.from_dict(_TRAINING[name]))
