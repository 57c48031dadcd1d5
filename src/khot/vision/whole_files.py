"""Files that a reader sees as they were or as they are, never half written; safetensors and JSON only."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

__all__ = ["read_tensors", "replacing", "write_json", "write_tensors"]


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A file to write beside ``path``, which it replaces if nothing went wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(value: Any, path: Path) -> None:
    """Write ``value`` as JSON."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any], path: Path) -> None:
    """Write tensors, and in the same file ``about`` as JSON."""
    save_file = _safetensors("safetensors.torch").save_file
    whole = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, metadata={key: json.dumps(value) for key, value in about.items()})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and what it says about them; a `ValueError` if it is no safetensors file."""
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
    import importlib

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "khot.vision: checkpoints need safetensors: pip install safetensors"
        ) from error
