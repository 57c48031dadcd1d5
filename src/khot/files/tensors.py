"""Tensors in safetensors files, with metadata as JSON; nothing is ever unpickled."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from khot.files.untrusted import parse_json
from khot.files.whole import Writer, write_together

__all__ = [
    "check_fits",
    "check_safetensors",
    "optimizer_moments",
    "read_tensors",
    "tensor_writer",
    "write_tensors",
]

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # what Adam and AdamW keep of each parameter


def check_safetensors() -> None:
    """Raise `ModuleNotFoundError`, with how to install safetensors, if it is missing."""
    _safetensors("safetensors.torch")


def write_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any], path: Path) -> None:
    """Write tensors, with the metadata ``about`` as JSON in the same file."""
    write_together({path: tensor_writer(tensors, about)})


def tensor_writer(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Writer:
    """A writer of tensors and metadata, for :func:`khot.files.whole.write_together`."""
    save_file = _safetensors("safetensors.torch").save_file
    failure = _safetensors("safetensors").SafetensorError
    whole = _apart({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})
    metadata = {key: json.dumps(value) for key, value in about.items()}

    def write(file: Path) -> None:
        try:
            save_file(whole, file, metadata=metadata)
        except failure as error:  # what safetensors makes of a full disk: "… (os error 28)"
            found = re.search(r"\(os error (\d+)\)", str(error))
            raise (
                OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))
            ) from error

    return write


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with memory of their own: safetensors refuses tied ones, which share it."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return found


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
        return parse_json(text, finite=False)  # a curve may have a NaN
    except ValueError:  # another program's: plain text
        return text


def check_fits(
    expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: str, owner: str
) -> None:
    """Raise a `ValueError` that names a tensor which ``owner`` needs or lacks, or of another shape or type.

    Floating point numbers may be of another precision. Nothing is loaded here, so that a file which does not
    fit changes nothing.
    """
    for name, tensor in expected.items():
        if name not in tensors:
            raise ValueError(f"{source} lacks {name}, which {owner} has")
        found = tensors[name]
        if found.shape != tensor.shape:
            raise ValueError(
                f"{source}: {name} has the shape {tuple(found.shape)}, "
                f"this configuration asks for {tuple(tensor.shape)}"
            )
        if found.dtype != tensor.dtype and not (found.is_floating_point() and tensor.is_floating_point()):
            raise ValueError(f"{source}: {name} has the type {found.dtype}, {owner} has {tensor.dtype}")
    unknown = [name for name in tensors if name not in expected]
    if unknown:
        raise ValueError(f"{source} has {unknown[0]}, which {owner} lacks")


def optimizer_moments(
    tensors: Mapping[str, Tensor], parameters: Sequence[Tensor], source: str
) -> dict[int, dict[str, Tensor]]:
    """The state of Adam for each parameter, from tensors named ``<number>.<moment>``.

    Raises:
        ValueError: if a parameter does not exist, or a moment has another shape or is missing.
    """
    numbers = {str(number): number for number in range(len(parameters))}
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, moment = name.partition(".")
        if number not in numbers or moment not in _MOMENTS:
            raise ValueError(f"{source} has optimizer.{name}, which is of no parameter of this run")
        wanted = () if moment == "step" else tuple(parameters[numbers[number]].shape)
        if tuple(tensor.shape) != wanted or not tensor.is_floating_point():
            raise ValueError(
                f"{source}: optimizer.{name} is {tensor.dtype} of the shape {tuple(tensor.shape)}, "
                f"this run has real numbers of the shape {wanted}"
            )
        moments.setdefault(numbers[number], {})[moment] = tensor
    for number, found in moments.items():
        if len(found) < len(_MOMENTS):
            raise ValueError(f"{source} lacks optimizer.{number}.{min(_MOMENTS - set(found))}")
    return moments


def _safetensors(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "khot.vision: checkpoints need safetensors: pip install safetensors"
        ) from error
