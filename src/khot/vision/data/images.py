"""Labelled images in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from khot.relaxations._plain_arguments import check_tensor

__all__ = ["ImageTensors"]


@dataclass(frozen=True)
class ImageTensors(Dataset[tuple[Tensor, int]]):
    """Labelled images in memory; an item is (image in [0, 1] of shape (C, H, W), label).

    Args:
        images: (N, C, H, W), uint8 or float in [0, 1].
        labels: (N,), int64.
        classes: the name of each class.

    Example:
        >>> images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
        >>> ImageTensors(images, torch.tensor([1]), ("empty", "written"))[0]
        (tensor([[[0., 1.]]]), 1)
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_tensor("ImageTensors", "images", self.images)
        check_tensor("ImageTensors", "labels", self.labels)
        if self.labels.dtype != torch.int64:
            raise TypeError(f"ImageTensors: labels must be int64, got {self.labels.dtype}")
        if self.images.ndim != 4:
            raise ValueError(f"ImageTensors: images must be (N, C, H, W), got {tuple(self.images.shape)}")
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"ImageTensors: labels must be ({len(self.images)},), one for each image, "
                f"got {tuple(self.labels.shape)}"
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise ValueError(
                f"ImageTensors: labels must be in 0 … {len(self.classes) - 1}, "
                f"got {int(self.labels.min())} … {int(self.labels.max())}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return _scaled(self.images[index]), int(self.labels[index])

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) in [0, 1] and labels (B,); with a generator, each image is randomly shifted.

        The shift is at most an eighth of a side; new pixels are 0.
        """
        images = _scaled(self.images[indices])
        if generator is not None:
            images = _shifted(images, generator)
        return images, self.labels[indices]


def _scaled(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by its own number of rows and columns."""
    count, channels, height, width = images.shape
    reach_y, reach_x = height // 8, width // 8
    padded = torch.nn.functional.pad(images, (reach_x, reach_x, reach_y, reach_y))
    top = torch.randint(2 * reach_y + 1, (count, 1, 1, 1), generator=generator)
    left = torch.randint(2 * reach_x + 1, (count, 1, 1, 1), generator=generator)
    rows = top + torch.arange(height).view(1, 1, -1, 1)
    columns = left + torch.arange(width).view(1, 1, 1, -1)
    return padded[
        torch.arange(count).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1), rows, columns
    ]
