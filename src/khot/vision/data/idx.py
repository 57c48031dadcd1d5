"""Files in the idx format of MNIST: a magic number, the sizes, the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from khot.files.untrusted import unpacked
from khot.vision.data.images import ImageTensors

__all__ = ["has_idx_files", "idx_images", "read_idx"]

_STEMS = {True: "train", False: "t10k"}
_UNSIGNED_BYTES = 0x08


def idx_images(folder: Path, train: bool, classes: tuple[str, ...] | None = None) -> ImageTensors:
    """The training or test images and labels in a folder; without ``classes`` these are named 0, 1, …"""
    images_file = _file(folder, f"{_STEMS[train]}-images-idx3-ubyte")
    labels_file = _file(folder, f"{_STEMS[train]}-labels-idx1-ubyte")
    images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
    if len(images) != len(labels):
        raise ValueError(
            f"data.load: {images_file} has {len(images)} images, {labels_file} has {len(labels)} labels"
        )
    if classes is None:
        classes = tuple(str(c) for c in range(int(labels.max()) + 1 if len(labels) else 0))
    return ImageTensors(images.unsqueeze(1), labels.long(), classes)


def has_idx_files(folder: Path) -> bool:
    """Whether the folder has a file named like those of MNIST."""
    return any(folder.glob("*-idx[13]-ubyte")) or any(folder.glob("*-idx[13]-ubyte.gz"))


def read_idx(file: Path, dimensions: int) -> Tensor:
    """The bytes of an idx file with this many dimensions; an error tells what is wrong with it."""
    content = _content(file)
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"data.load: {file} is truncated: {len(content)} bytes, the header has {start}")
    magic = content[:4]
    expected = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    if magic != expected:
        raise ValueError(
            f"data.load: {file} begins with {magic.hex()}, an idx file of bytes with {dimensions} "
            f"dimensions with {expected.hex()}"
        )
    shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", content[4:start])
    # No data for large sides: torch could not say which memory such a tensor has.
    if len(content) - start != math.prod(shape) or math.prod(max(side, 1) for side in shape) >= 1 << 62:
        raise ValueError(
            f"data.load: {file} is truncated or damaged: {len(content) - start} bytes of data, "
            f"the header says {' × '.join(map(str, shape))} = {math.prod(shape)}"
        )
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(shape)


def _file(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise FileNotFoundError(f"data.load: neither {folder / name} nor {name}.gz beside it exists")


def _content(file: Path) -> bytes:
    if file.suffix != ".gz":
        return file.read_bytes()
    try:
        return unpacked(file)
    except ValueError as error:
        raise ValueError(f"data.load: {file} is {error}") from error
