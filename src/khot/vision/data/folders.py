"""Pictures on disk, one folder for each class, read when they are needed."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from khot.relaxations._plain_arguments import check_integer, check_path, check_switch

__all__ = ["FolderImages"]

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_HELD_OUT = ("val", "validation", "test")
_MARGIN = 256 / 224  # the shorter side over the central crop, as is usual for ImageNet
_CROP_AREA = (0.08, 1.0)
_CROP_RATIO = (3 / 4, 4 / 3)
_CROP_ATTEMPTS = 10


class FolderImages(Dataset[tuple[Tensor, int]]):
    """Pictures in one folder for each class, below ``train`` and ``val``, read when they are needed.

    A picture is resized so that its central square of ``size`` pixels can be cut out with a small margin. The
    classes are the folders of ``train``, sorted by name. Cost: opening it lists the files; a batch reads its
    own pictures.

    Args:
        folder: contains ``train``, and ``val``, ``validation`` or ``test``.
        train: True for the training images, False for the test images.
        size: the side of the square images, in pixels.
        channels: 3, or 1 for greyscale.

    Example:
        >>> FolderImages("absent")
        Traceback (most recent call last):
        FileNotFoundError: data.load: there is no folder 'absent/train' with a folder for each class
    """

    def __init__(self, folder: str | Path, train: bool = True, size: int = 224, channels: int = 3) -> None:
        check_path("FolderImages", "folder", folder)
        check_switch("FolderImages", "train", train)
        _import_pillow()
        _check_shape(size, channels)
        self.classes = _class_names(Path(folder) / "train")
        half = Path(folder) / "train" if train else _held_out_folder(Path(folder))
        unknown = sorted(set(_class_names(half)) - set(self.classes))
        if unknown:
            raise ValueError(
                f"data.load: classes of '{half}' that the training folder lacks: {', '.join(unknown)}"
            )
        files = [
            (file, label)
            for label, name in enumerate(self.classes)
            if (half / name).is_dir()
            for file in sorted((half / name).iterdir())
            if file.suffix.lower() in _SUFFIXES
        ]
        if not files:
            raise FileNotFoundError(f"data.load: no picture ({', '.join(sorted(_SUFFIXES))}) below '{half}'")
        self.files = [file for file, _ in files]
        self.labels = torch.tensor([label for _, label in files])
        self.size = size
        self.channels = channels

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.size, self.size

    def resized(self, size: int, channels: int) -> FolderImages:
        """The same pictures with another size and number of channels."""
        _check_shape(size, channels)
        other = copy.copy(self)
        other.size, other.channels = size, channels
        return other

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._read(index, None), int(self.labels[index])

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) in [0, 1] and labels (B,); with a generator, randomly cropped and flipped.

        The random crop covers 8 to 100 % of the picture, with sides in the ratio 3 : 4 to 4 : 3.
        """
        return torch.stack([self._read(int(i), generator) for i in indices]), self.labels[indices]

    def _read(self, index: int, generator: torch.Generator | None) -> Tensor:
        pillow = _import_pillow()
        try:
            with pillow.open(self.files[index]) as opened:
                picture = opened.convert("RGB" if self.channels == 3 else "L")
        # A truncated or foreign file; a broken PNG; a picture that unpacks to more than Pillow allows.
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            raise ValueError(f"data.load: cannot read {self.files[index]} ({error})") from error
        width, height = picture.size
        mirrored = False
        if generator is None:
            box = _central_box(width, height, self.size)
        else:
            box = _random_box(width, height, generator)
            mirrored = bool(torch.rand((), generator=generator) < 0.5)
        resized = picture.resize((self.size, self.size), pillow.Resampling.BILINEAR, box=box)
        pixels = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8)
        image = pixels.view(self.size, self.size, self.channels).permute(2, 0, 1) / 255
        return image.flip(-1) if mirrored else image.contiguous()


def _check_shape(size: int, channels: int) -> None:
    check_integer("data.load", "size", size)
    if channels not in (1, 3):
        raise ValueError(f"data.load: channels must be 1 or 3, got {channels}")


def _central_box(width: int, height: int, size: int) -> tuple[float, float, float, float]:
    """The square of the picture that becomes the image: its shorter side without a margin."""
    side = min(width, height) / (_MARGIN if min(width, height) > size else 1)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _random_box(width: int, height: int, generator: torch.Generator) -> tuple[float, float, float, float]:
    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

    for _ in range(_CROP_ATTEMPTS):
        area = uniform(*_CROP_AREA) * width * height
        ratio = math.exp(uniform(math.log(_CROP_RATIO[0]), math.log(_CROP_RATIO[1])))
        wide, high = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if wide <= width and high <= height:
            left, top = uniform(0, width - wide), uniform(0, height - high)
            return left, top, left + wide, top + high
    return _central_box(width, height, min(width, height))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = (
        tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir())) if folder.is_dir() else ()
    )
    if not names:
        raise FileNotFoundError(f"data.load: there is no folder '{folder}' with a folder for each class")
    return names


def _held_out_folder(folder: Path) -> Path:
    for name in _HELD_OUT:
        if (folder / name).is_dir():
            return folder / name
    raise FileNotFoundError(f"data.load: '{folder}' has none of the folders {', '.join(_HELD_OUT)}")


def _import_pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("data.load: pictures are read with Pillow: pip install pillow") from error
    return Image
