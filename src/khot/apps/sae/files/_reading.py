"""Helpers to read the folders of other tools: check the configuration, and fit tensors to parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["NAME", "check_same", "filled", "read_config", "stated", "whole_number"]

NAME = "SparseAutoencoder.load"


def read_config(path: Path) -> dict[str, Any]:
    """A JSON object in a file; the errors name the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{NAME}: there is no {path}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{NAME}: {path} is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise ValueError(f"{NAME}: {path} must hold an object, got {type(config).__name__}")
    return cast("dict[str, Any]", config)


def stated(config: Mapping[str, Any], field: str, path: Path) -> Any:
    """A required field of the configuration; nothing is guessed."""
    if config.get(field) is None:
        raise ValueError(f"{NAME}: {path} does not state {field!r}, and nothing is guessed; write it there")
    return config[field]


def whole_number(config: Mapping[str, Any], field: str, path: Path) -> int:
    """A required field of the configuration that must be an integer."""
    value = stated(config, field, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{NAME}: {path} has {field} = {value!r}, which must be a whole number")
    return int(value)


def check_same(config: Mapping[str, Any], saved: Any, path: Path) -> None:
    """Compare the file with the configuration stored in the weights, if there is one."""
    if not isinstance(saved, Mapping):
        return
    for field, value in cast("Mapping[str, Any]", saved).items():
        if config.get(field) != value:
            raise ValueError(
                f"{NAME}: {path} has {field} = {json.dumps(config.get(field))}, the weights were "
                f"saved with {json.dumps(value)}"
            )


def filled(autoencoder: SparseAutoencoder, tensors: Mapping[str, Tensor], source: Path) -> SparseAutoencoder:
    """The autoencoder with these parameters, by name; a `ValueError` names a tensor that does not fit."""
    wanted = dict(autoencoder.named_parameters())
    for name, parameter in wanted.items():
        if name not in tensors:
            raise ValueError(f"{NAME}: {source} lacks {name}")
        if tensors[name].shape != parameter.shape:
            raise ValueError(
                f"{NAME}: {source}: {name} has the shape {tuple(tensors[name].shape)}, "
                f"the configuration asks for {tuple(parameter.shape)}"
            )
        if not bool(tensors[name].isfinite().all()):
            raise ValueError(f"{NAME}: {source}: {name} has entries that are not finite")
    unknown = [name for name in tensors if name not in wanted]
    if unknown:
        raise ValueError(
            f"{NAME}: {source} has {unknown[0]}, which an autoencoder of this configuration lacks"
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(tensors[name])
    return autoencoder.eval()
