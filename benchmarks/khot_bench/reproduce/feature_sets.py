"""The data of `khot reproduce features`: images, speech, proteins and genes, and their paired splits.

mnist, fashion-mnist    10 000 rows of the training half, drawn anew for each split, from idx files
isolet                  ``isolet/Isolet.mat`` in the data folder: 1560 rows of UCI's ISOLET, not all 7797
mice                    ``mice-protein/Data_Cortex_Nuclear.csv.gz`` there; a missing value is its column's
mean nci60, khan             in the package ISLP (``pip install --no-deps ISLP``), whose code is not run
golub                   ``golub/golub.RData`` in the data folder, or the Debian package r-bioc-multtest;
needs rdata
"""

# pyright: basic
from __future__ import annotations

import csv
import functools
import gzip
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from khot.vision.data import ImageTensors, data_folder, load

__all__ = ["GENES", "IMAGES", "SETS", "Parts", "parts_of"]

IMAGES = ("mnist", "fashion-mnist")
GENES = ("nci60", "khan", "golub")
SETS = (*IMAGES, "isolet", "mice", *GENES)
_ROWS = 10_000
_FEWEST = 5  # rows of a class that can be split; NCI60 has six kinds with one or two
_DEBIAN_GOLUB = Path("/usr/lib/R/site-library/multtest/data/golub.RData")
_FIRST_SEED = 1000  # of splits on which nothing was chosen


class Parts(NamedTuple):
    """Rows to select and train on, to choose by, and to test on, each (X, y)."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def parts_of(name: str, split: int) -> Parts:
    """70 %, 10 % and 20 % of the rows, by class; of gene sets 70 % and 30 %, with nothing to choose by."""
    from sklearn.model_selection import train_test_split

    seed = _FIRST_SEED + split
    x, y = _rows(name, seed)
    a, b, ya, yb = map(np.asarray, train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y))
    if name in GENES:
        return Parts((a, ya), (b[:0], yb[:0]), (b, yb))
    v, t, yv, yt = map(np.asarray, train_test_split(b, yb, test_size=2 / 3, random_state=seed, stratify=yb))
    return Parts((a, ya), (v, yv), (t, yt))


def _rows(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if name not in IMAGES:
        return _whole(name)
    x, y = _whole(name)
    chosen = np.random.default_rng(seed).permutation(len(x))[:_ROWS]
    return x[chosen].astype(np.float32) / 255, y[chosen]


@functools.cache
def _whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in IMAGES:
        images = load(name)
        assert isinstance(images, ImageTensors)
        return images.images.flatten(1).numpy(), images.labels.numpy()
    x, labels = {"isolet": _isolet, "mice": _mice, "nci60": _nci60, "khan": _khan, "golub": _golub}[name]()
    y = np.unique(np.asarray(labels), return_inverse=True)[1]
    enough = np.bincount(y)[y] >= _FEWEST
    return np.asarray(x, dtype=np.float32)[enough], np.unique(y[enough], return_inverse=True)[1]


def _file(path: Path, where_from: str) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {where_from}")
    return path


def _isolet() -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    raw = loadmat(_file(data_folder() / "isolet" / "Isolet.mat", "UCI ISOLET as 1560 rows, a MATLAB file"))
    return raw["X"], raw["Y"].ravel()


def _mice() -> tuple[np.ndarray, np.ndarray]:
    path = data_folder() / "mice-protein" / "Data_Cortex_Nuclear.csv.gz"
    with gzip.open(_file(path, "UCI Mice Protein Expression, gzipped"), "rt") as file:
        head, *rows = csv.reader(file)
    first, last = int(head[0] == "MouseID"), head.index("Genotype")
    x = np.array([[float(v) if v not in ("", "?") else np.nan for v in row[first:last]] for row in rows])
    return np.where(np.isnan(x), np.nanmean(x, 0), x), np.array([row[-1] for row in rows])


def _islp(file: str) -> Path:
    found = find_spec("ISLP")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError("NCI60 and Khan come with ISLP: pip install --no-deps ISLP")
    return _file(Path(found.submodule_search_locations[0]) / "data" / file, "ISLP 0.6 has it")


def _columns(file: str) -> list[list[str]]:
    with _islp(file).open(newline="") as opened:
        return [row for row in csv.reader(opened) if row][1:]


def _nci60() -> tuple[np.ndarray, np.ndarray]:
    return np.load(_islp("NCI60data.npy"), allow_pickle=False), np.array(
        [row[-1] for row in _columns("NCI60labs.csv")]
    )


def _khan() -> tuple[np.ndarray, np.ndarray]:
    x = [
        [float(v) for v in row[-2308:]] for half in ("train", "test") for row in _columns(f"Khan_x{half}.csv")
    ]
    y = [row[-1] for half in ("train", "test") for row in _columns(f"Khan_y{half}.csv")]
    return np.array(x), np.array(y)


def _golub() -> tuple[np.ndarray, np.ndarray]:
    try:
        import rdata  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("golub is read with rdata: pip install rdata") from error
    mine = data_folder() / "golub" / "golub.RData"
    path = (
        mine
        if mine.is_file()
        else _file(_DEBIAN_GOLUB, f"apt-get install r-bioc-multtest, or put it at {mine}")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are not ASCII
        read = rdata.read_rda(path)
    return np.asarray(read["golub"]).T, np.asarray(read["golub.cl"]).ravel()
