"""Helpers to read the folders of other tools: check the configuration, and fit tensors to parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from khot.files.untrusted import read_object

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = [
    "NAME",
    "TYPES",
    "check_same",
    "check_shapes",
    "filled",
    "matrices",
    "read_config",
    "sizes_of",
    "stated",
    "switch",
    "whole_number",
]

NAME = "SparseAutoencoder.load"
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def read_config(path: Path) -> dict[str, Any]:
    """A JSON object in a file; the errors name the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{NAME}: there is no {path}")
    return read_object(path, NAME)


def stated(config: Mapping[str, Any], field: str, path: Path) -> Any:
    """A required field of the configuration; nothing is guessed."""
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{NAME}: {path} must state {field!r} in an object, got {config!r}")
    if config.get(field) is None:
        raise ValueError(f"{NAME}: {path} does not state {field!r}, and nothing is guessed; write it there")
    return config[field]


def whole_number(config: Mapping[str, Any], field: str, path: Path) -> int:
    """A required field of the configuration that must be an integer."""
    value = stated(config, field, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{NAME}: {path} has {field} = {value!r}, which must be a whole number")
    return int(value)


def switch(config: Mapping[str, Any], field: str, path: Path, default: bool | None = None) -> bool:
    """A field of the configuration that must be true or false; required, unless there is a default."""
    value = config.get(field)
    if value is None:
        value = stated(config, field, path) if default is None else default
    if not isinstance(value, bool):
        raise ValueError(f"{NAME}: {path} has {field} = {value!r}, which must be true or false")
    return value


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


def matrices(latents: int, d_in: int, d_out: int, skip: bool = False) -> dict[str, tuple[int, ...]]:
    """The shapes of all matrices of an autoencoder, for :func:`check_shapes`."""
    shapes = {"W_enc": (latents, d_in), "W_dec": (latents, d_out)}
    return {**shapes, "W_skip": (d_out, d_in)} if skip else shapes


def check_shapes(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], source: Path) -> None:
    """Compare tensors with the sizes of a configuration, before memory of these sizes is taken."""
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(f"{NAME}: {source} lacks {name}")
        found = tensors[name]
        if tuple(found.shape) != shape:
            raise ValueError(
                f"{NAME}: {source}: {name} has the shape {tuple(found.shape)}, "
                f"the configuration asks for {shape}"
            )
        if found.dtype not in TYPES:
            raise ValueError(
                f"{NAME}: {source}: {name} has the type {found.dtype}, which must be of real numbers"
            )
        if not bool(found.isfinite().all()):
            raise ValueError(f"{NAME}: {source}: {name} has entries that are not finite")


def sizes_of(tensors: Mapping[str, Tensor], name: str, source: Path) -> tuple[int, int]:
    """The two sizes of a matrix, which must be there, of real numbers."""
    if name not in tensors:
        raise ValueError(f"{NAME}: {source} lacks {name}")
    shape, dtype = tuple(tensors[name].shape), tensors[name].dtype
    if len(shape) != 2 or dtype not in TYPES:
        raise ValueError(
            f"{NAME}: {source}: {name} must be a matrix of real numbers, got {dtype} of the shape {shape}"
        )
    return shape[0], shape[1]


def filled(autoencoder: SparseAutoencoder, tensors: Mapping[str, Tensor], source: Path) -> SparseAutoencoder:
    """The autoencoder with these parameters, by name; a `ValueError` names a tensor that does not fit."""
    wanted = dict(autoencoder.named_parameters())
    check_shapes(tensors, {name: tuple(parameter.shape) for name, parameter in wanted.items()}, source)
    unknown = [name for name in tensors if name not in wanted]
    if unknown:
        raise ValueError(
            f"{NAME}: {source} has {unknown[0]}, which an autoencoder of this configuration lacks"
        )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(tensors[name])
    return autoencoder.eval()
