"""scikit-learn's handwritten digits, and pairs of digits."""

from __future__ import annotations

from typing import Any, cast

import torch

from khot.relaxations._plain_arguments import check_integer
from khot.vision.data.images import ImageTensors

__all__ = ["digit_pairs", "digits"]

_PAIRS = {True: 10_000, False: 2_000}


def digits(train: bool) -> ImageTensors:
    """The 1797 digits of 8×8 pixels; every third is a test image."""
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "data.load: 'digits' comes with scikit-learn: pip install scikit-learn"
        ) from error
    bunch = cast(Any, load_digits())
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 3 == 2
    chosen = ~held_out if train else held_out
    return ImageTensors(images[chosen], labels[chosen], tuple("0123456789"))


def digit_pairs(single: ImageTensors, train: bool, seed: int = 0, count: int | None = None) -> ImageTensors:
    """Pairs of digits from ``single``, left and right; the class is the number 00 … 99 that they form."""
    if count is None:
        count = _PAIRS[train]
    check_integer("data.load", "count", count)
    check_integer("data.load", "seed", seed, least=0)
    generator = torch.Generator().manual_seed(2 * seed + train)
    chosen = torch.randint(len(single), (count, 2), generator=generator)
    images = torch.cat([single.images[chosen[:, 0]], single.images[chosen[:, 1]]], dim=-1)
    labels = 10 * single.labels[chosen[:, 0]] + single.labels[chosen[:, 1]]
    return ImageTensors(images, labels, tuple(f"{number:02d}" for number in range(100)))
