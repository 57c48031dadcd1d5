"""The settings for training a network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from khot.relaxations._plain_arguments import is_integer, is_number

__all__ = ["TrainSettings"]


@dataclass(frozen=True)
class TrainSettings:
    """Training settings: AdamW, with a learning rate that warms up and then falls to 0 along half a cosine.

    Args:
        data: a name or a folder for :func:`khot.vision.data.load`.
        epochs: the number of epochs.
        batch_size: images per step, over all processes.
        learning_rate: the peak learning rate.
        weight_decay: weight decay of matrices; biases, norms, positions and temperatures have none.
        warmup_epochs: the number of epochs in which the learning rate grows.
        label_smoothing: in [0, 1).
        mixup: the parameter of the beta distribution of mixing weights; 0 for no mixup.
        clip: the largest norm of a gradient; 0 for no clipping.
        augment: whether to augment training images by random shifts, or random crops and flips.
        bfloat16: whether to use autocast to bfloat16.
        seed: the seed of the initial weights, the order of the images and all noise.
        checkpoint_steps: the state is saved after every epoch, and every this many steps if not 0.

    Example:
        >>> TrainSettings(epochs=0)
        Traceback (most recent call last):
        ValueError: TrainSettings: epochs must be an integer ≥ 1, got 0
    """

    data: str = "digits"
    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup_epochs: float = 3.0
    label_smoothing: float = 0.1
    mixup: float = 0.0
    clip: float = 1.0
    augment: bool = True
    bfloat16: bool = False
    seed: int = 0
    checkpoint_steps: int = 0

    def __post_init__(self) -> None:
        self._require("data", "a text", lambda value: isinstance(value, str) and bool(value))
        for field in ("augment", "bfloat16"):
            self._require(field, "true or false", lambda value: isinstance(value, bool))
        for field in ("epochs", "batch_size"):
            self._require(field, "an integer ≥ 1", lambda value: is_integer(value) and value >= 1)
        for field in ("seed", "checkpoint_steps"):
            self._require(field, "an integer ≥ 0", lambda value: is_integer(value) and value >= 0)
        self._require("learning_rate", "a number > 0", lambda value: _is_finite(value) and value > 0)
        for field in ("weight_decay", "warmup_epochs", "mixup", "clip"):
            self._require(field, "a number ≥ 0", lambda value: _is_finite(value) and value >= 0)
        self._require(
            "label_smoothing", "a number in [0, 1)", lambda value: _is_finite(value) and 0 <= value < 1
        )

    def _require(self, field: str, rule: str, allowed: Callable[[Any], bool]) -> None:
        value = getattr(self, field)
        if not allowed(value):
            raise ValueError(f"TrainSettings: {field} must be {rule}, got {value!r}")
        if isinstance(value, np.generic):  # which JSON lacks
            object.__setattr__(self, field, value.item())

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> TrainSettings:
        """Settings from a dictionary; an unknown field is an error that names it."""
        if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"TrainSettings: fields must be an object, got {fields!r}")
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ValueError(f"TrainSettings: no field {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**fields)

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs."""
        warmup = self.warmup_epochs * steps_per_epoch
        if step < warmup:
            return self.learning_rate * (step + 1) / (warmup + 1)
        share = (step - warmup) / max(self.epochs * steps_per_epoch - warmup, 1.0)
        return self.learning_rate * (1 + math.cos(math.pi * share)) / 2


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
