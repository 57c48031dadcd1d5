"""The configuration of a network: one dataclass for all networks, checked field by field, stored as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from khot.files.untrusted import read_object
from khot.relaxations._plain_arguments import check_choice, is_integer, is_number
from khot.relaxations.facade import has_rows
from khot.relaxations.registry import get

__all__ = ["MODELS", "NetworkConfig", "preset", "preset_names"]

MODELS = ("topk_attention", "topk_dynamic", "vit")


@dataclass(frozen=True)
class NetworkConfig:
    """The configuration of a network; the three models have the same fields.

    Args:
        model: ``"topk_attention"``, ``"topk_dynamic"`` or ``"vit"``.
        image_size: height and width in pixels, or one number for both.
        channels: number of channels of the images.
        classes: number of classes.
        patch_size: height and width of a patch, or one number for both; must divide the image size.
        width: the size of a token.
        depth: number of blocks.
        heads: number of attention heads; must divide ``width`` (times ``expansion`` in the dynamic model).
        mlp_ratio: hidden width of the block's MLP divided by ``width``. In the dynamic model the MLP is
            narrower, so that its blocks have as many parameters as those of the other models.
        dropout: in [0, 1), after the positional embedding, after the attention, and in the MLP.
        k: how many tokens a head selects; the plain model selects none.
        method: the relaxation that selects; any with rows, see :func:`khot.topk_matrix`.
        temperature: the initial value of the learned temperatures.
        expansion: inner width of the dynamic model's mixing divided by ``width``.

    Example:
        >>> config = NetworkConfig(image_size=28, channels=1, classes=10, patch_size=7, k=4)
        >>> config.tokens, config.image_size
        (16, (28, 28))
        >>> NetworkConfig(image_size=28, patch_size=5)
        Traceback (most recent call last):
        ValueError: NetworkConfig: patch_size (5, 5) must divide image_size (28, 28)
    """

    model: str = "topk_attention"
    image_size: int | tuple[int, int] = (224, 224)
    channels: int = 3
    classes: int = 1000
    patch_size: int | tuple[int, int] = (16, 16)
    width: int = 192
    depth: int = 12
    heads: int = 4
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    k: int = 16
    method: str = "soft_rank"
    temperature: float = 1.0
    expansion: int = 2

    def __post_init__(self) -> None:
        check_choice("NetworkConfig", "model", self.model, MODELS)
        object.__setattr__(self, "image_size", _pair("image_size", self.image_size))
        object.__setattr__(self, "patch_size", _pair("patch_size", self.patch_size))
        for field in ("channels", "classes", "width", "depth", "heads", "k", "expansion"):
            _check_count(field, getattr(self, field))
            object.__setattr__(self, field, int(getattr(self, field)))
        _check_number("mlp_ratio", self.mlp_ratio, "in (0, 2⁶⁴)", lambda value: 0 < value < 2.0**64)
        _check_number("dropout", self.dropout, "in [0, 1)", lambda value: 0 <= value < 1)
        in_float32 = "> 0 that float32 holds"  # as which it is learned
        _check_number("temperature", self.temperature, in_float32, lambda value: 2**-126 <= value < 2.0**127)
        for field in ("mlp_ratio", "dropout", "temperature"):
            if isinstance(getattr(self, field), np.generic):  # which JSON lacks
                object.__setattr__(self, field, getattr(self, field).item())
        self._check_together()

    def _check_together(self) -> None:
        if any(image % patch for image, patch in zip(self.image_hw, self.patch_hw, strict=True)):
            raise ValueError(
                f"NetworkConfig: patch_size {self.patch_size} must divide image_size {self.image_size}"
            )
        split = self.width * (self.expansion if self.model == "topk_dynamic" else 1)
        if split % self.heads:
            raise ValueError(f"NetworkConfig: heads must divide {split}, got {self.heads}")
        if self.model != "vit" and self.k > self.tokens:
            raise ValueError(f"NetworkConfig: k must be at most the {self.tokens} patches, got {self.k}")
        spec = get(self.method, "NetworkConfig")
        if not has_rows(spec) or spec.stochastic:
            raise ValueError(f"NetworkConfig: method must have rows and no noise, {self.method!r} has not")
        if self.hidden < 1:
            raise ValueError(
                "NetworkConfig: mlp_ratio is too small for the dynamic model to have a block of equal size, "
                f"got {self.mlp_ratio}"
            )

    @property
    def image_hw(self) -> tuple[int, int]:
        """Height and width of the images."""
        return cast("tuple[int, int]", self.image_size)

    @property
    def patch_hw(self) -> tuple[int, int]:
        """Height and width of a patch."""
        return cast("tuple[int, int]", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """The number of patches, vertically and horizontally."""
        return self.image_hw[0] // self.patch_hw[0], self.image_hw[1] // self.patch_hw[1]

    @property
    def tokens(self) -> int:
        """The number of patches."""
        return self.grid[0] * self.grid[1]

    @property
    def hidden(self) -> int:
        """Hidden width of the block's MLP."""
        plain = round(self.width * self.mlp_ratio)
        if self.model != "topk_dynamic":
            return plain
        # An attention has 4 w² + 4 w parameters; each unit of the MLP has 2 w + 1.
        inner = self.expansion * self.width
        mixing = (
            (self.width * inner + inner)
            + (self.tokens**2 + self.tokens)
            + (inner + 1) * (inner + self.heads)
            + (inner * self.width + self.width)
            + self.heads
        )
        attention = 4 * self.width**2 + 4 * self.width
        return plain - round((mixing - attention) / (2 * self.width + 1))

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary for JSON."""
        return {
            field: list(cast("tuple[int, int]", value)) if isinstance(value, tuple) else value
            for field, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NetworkConfig:
        """A configuration from a dictionary; an unknown field is an error that names it."""
        if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"NetworkConfig: fields must be an object, got {fields!r}")
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ValueError(f"NetworkConfig: no field {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**fields)

    @classmethod
    def from_json(cls, path: str | Path) -> NetworkConfig:
        """A configuration from a JSON file."""
        return cls.from_dict(read_object(path, "NetworkConfig"))


_PRESETS: dict[str, dict[str, Any]] = {
    "digits": {
        "image_size": 8,
        "channels": 1,
        "classes": 10,
        "patch_size": 2,
        "width": 48,
        "depth": 3,
        "k": 4,
    },
    "mnist": {
        "image_size": 28,
        "channels": 1,
        "classes": 10,
        "patch_size": 4,
        "width": 64,
        "depth": 4,
        "k": 8,
    },
    "imagenet-tiny": {"width": 192, "heads": 4, "k": 32},
    "imagenet-small": {"width": 384, "heads": 4, "k": 32},
}


def preset_names() -> tuple[str, ...]:
    """The names that :func:`preset` accepts.

    Returns:
        The names.

    Example:
        >>> preset_names()
        ('digits', 'mnist', 'imagenet-tiny', 'imagenet-small')
    """
    return tuple(_PRESETS)


def preset(name: str, **changes: Any) -> NetworkConfig:
    """A configuration by name.

    Args:
        name: ``"digits"``, ``"mnist"``, ``"imagenet-tiny"`` or ``"imagenet-small"``.
        changes: fields to change, such as ``model``.

    Returns:
        The configuration.

    Example:
        >>> preset("digits", model="vit").tokens
        16
    """
    check_choice("preset", "name", name, _PRESETS)
    return NetworkConfig.from_dict({**_PRESETS[name], **changes})


def _pair(field: str, value: Any) -> tuple[int, int]:
    pair: tuple[Any, ...] = (
        tuple(cast("list[Any]", value)) if isinstance(value, list | tuple) else (value, value)
    )
    if len(pair) != 2 or not all(_is_count(side) for side in pair):
        raise ValueError(f"NetworkConfig: {field} must be one or two positive integers, got {value!r}")
    return int(pair[0]), int(pair[1])


def _is_count(value: Any) -> bool:
    return is_integer(value) and value > 0


def _check_count(field: str, value: Any) -> None:
    if not _is_count(value):
        raise ValueError(f"NetworkConfig: {field} must be a positive integer, got {value!r}")


def _check_number(field: str, value: Any, rule: str, allowed: Callable[[float], bool]) -> None:
    if not is_number(value) or not allowed(value):
        raise ValueError(f"NetworkConfig: {field} must be a number {rule}, got {value!r}")
