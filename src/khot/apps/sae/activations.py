"""Activations of a network on disk, as :func:`khot.apps.sae.collect_activations` writes them.

A folder holds ``store.json``, and for each shard ``activations-N.npy`` (rows, d), ``rows-N.npy`` (the
position of each row among the tokens of the shard) and ``tokens-N.npy`` (sequences, length), so that every
row can be shown in its context. Nothing is ever unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from khot.files.untrusted import read_object

__all__ = ["SHARD", "STORE", "ActivationStore"]

STORE = "store.json"
SHARD = {"activations": "activations-{:05d}.npy", "rows": "rows-{:05d}.npy", "tokens": "tokens-{:05d}.npy"}

_TYPES = {"activations": ("float16", "float32"), "rows": ("int32",), "tokens": ("int32",)}


class ActivationStore:
    """A folder of activations written by :func:`collect_activations`.

    Cost: opening it reads no activations; files are memory-mapped.

    Args:
        folder: the folder, with ``store.json``.
        shards: use only this many files, from the first.

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> store = collect_activations(network, "1", torch.randn(3, 10, 4), tempfile.mkdtemp())
        >>> len(store), store.d, store.read([0, 29]).shape
        (30, 8, torch.Size([2, 8]))
    """

    def __init__(self, folder: str | Path, shards: int | None = None) -> None:
        self.folder = Path(folder)
        path = self.folder / STORE
        if not path.is_file():
            raise FileNotFoundError(f"ActivationStore: there is no {path}; collect_activations writes it")
        try:
            document = read_object(path, "ActivationStore")
            self.about: dict[str, Any] = dict(document["about"])
            self.d: int = _size(document["d"])
            self.shard_rows: list[int] = [_size(count) for count in document["shard_rows"][:shards]]
            limit = document["norm_limit"]
            if limit is not None and not isinstance(limit, int | float):
                raise ValueError(f"norm_limit must be a number, got {limit!r}")
            self.norm_limit: float | None = limit
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"ActivationStore: {path} does not describe activations ({error!r})") from error
        self._starts = np.concatenate([[0], np.cumsum(self.shard_rows, dtype=np.int64)])
        self._open = [self._shard("activations", i) for i in range(len(self.shard_rows))]

    def __len__(self) -> int:
        """How many vectors there are."""
        return int(self._starts[-1])

    def read(self, rows: Any) -> Tensor:
        """The vectors (len(rows), d) of these rows, in float32; only the parts needed are read from disk."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(
                f"ActivationStore: rows must be in 0 … {len(self) - 1}, got {rows.min()} … {rows.max()}"
            )
        found = np.empty((len(rows), self.d), np.float32)
        shards = cast("NDArray[np.int64]", np.searchsorted(self._starts, rows, side="right") - 1)
        for shard in sorted({int(shard) for shard in shards}):
            here = np.flatnonzero(shards == shard)
            inside = rows[here] - self._starts[shard]
            order = np.argsort(inside, kind="stable")  # files are read from front to back
            found[here[order]] = self._open[shard][inside[order]]
        return torch.as_tensor(found)

    def context(self, row: int, before: int = 12, after: int = 6) -> tuple[list[int], int]:
        """The tokens around a row, and the row's position in them; a `ValueError` if no tokens were kept."""
        shard = int(np.searchsorted(self._starts, row, side="right")) - 1
        tokens = self._shard("tokens", shard)
        if not tokens.size:
            raise ValueError("ActivationStore: no tokens were kept with these activations")
        place = int(self._shard("rows", shard)[row - self._starts[shard]])
        if not 0 <= place < tokens.size:
            raise ValueError(
                f"ActivationStore: row {row} is at token {place}, of {tokens.size} that were kept"
            )
        sequence, position = divmod(place, tokens.shape[1])
        first = max(position - before, 0)
        line = tokens[sequence, first : position + after + 1]
        return [int(token) for token in line], position - first

    def _shard(self, kind: str, number: int) -> NDArray[Any]:
        path = self.folder / SHARD[kind].format(number)
        try:
            found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # whatever a damaged header makes of NumPy, which parses it as Python
            raise ValueError(
                f"ActivationStore: {path} cannot be read ({str(error) or repr(error)})"
            ) from error
        array = cast("NDArray[Any]", found)
        if not isinstance(found, np.ndarray) or array.dtype not in _TYPES[kind]:
            raise ValueError(f"ActivationStore: {path} must hold an array of {' or '.join(_TYPES[kind])}")
        if array.ndim != (1 if kind == "rows" else 2) or (kind == "activations" and array.shape[1] != self.d):
            raise ValueError(
                f"ActivationStore: {path} has the shape {array.shape}, {STORE} says d = {self.d}"
            )
        if kind != "tokens" and len(array) != self.shard_rows[number]:
            raise ValueError(
                f"ActivationStore: {path} has {len(array)} rows, {STORE} says {self.shard_rows[number]}"
            )
        return array


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise ValueError(f"a size must be a whole number ≥ 0, got {value!r}")
    return value
