"""Tensors in safetensors files, with metadata as JSON; nothing is ever unpickled."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from khot.whole_files import replacing

__all__ = ["check_safetensors", "read_tensors", "write_tensors"]


def check_safetensors() -> None:
    """Raise `ModuleNotFoundError`, with how to install safetensors, if it is missing."""
    _safetensors("safetensors.torch")


def write_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any], path: Path) -> None:
    """Write tensors, with the metadata ``about`` as JSON in the same file."""
    save_file = _safetensors("safetensors.torch").save_file
    whole = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, metadata={key: json.dumps(value) for key, value in about.items()})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and its metadata; a `ValueError` if it is not a safetensors file."""
    package = _safetensors("safetensors")
    try:
        with package.safe_open(path, framework="pt") as file:
            tensors = {name: cast(Tensor, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            metadata = cast("dict[str, str]", file.metadata() or {})
    except package.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from error
    return tensors, {key: _decoded(text) for key, text in metadata.items()}


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # another program's: plain text
        return text


def _safetensors(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "khot.vision: checkpoints need safetensors: pip install safetensors"
        ) from error
