r"""Activations of a network at a hook point, on disk: what sparse autoencoders are trained on.

:func:`collect_activations` runs a network on batches, takes the output of one of its modules, and writes
the vectors of all tokens to a folder. Some batches make one file (a *shard*), so that memory holds one shard,
and a collection that was stopped can resume. Layers after the module are not computed. You can leave out
first tokens, padding, and the few tokens of very large norm that many language models have (attention sinks).

:class:`ActivationStore` reads such a folder: ``store.json``, and for each shard ``activations-N.npy``
(rows, d), ``rows-N.npy`` (the position of each row among the tokens of the shard) and ``tokens-N.npy``
(sequences, length), so that every row can be shown in its context. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from khot.apps.sae._decoder_norms import row_norms
from khot.files.untrusted import read_object
from khot.files.whole import replacing, write_json

__all__ = ["ActivationStore", "collect_activations"]

_STORE = "store.json"
_FILES = {"activations": "activations-{:05d}.npy", "rows": "rows-{:05d}.npy", "tokens": "tokens-{:05d}.npy"}

_TYPES = {"activations": ("float16", "float32"), "rows": ("int32",), "tokens": ("int32",)}

Dtype = Literal["float16", "float32"]
Batch = Tensor | Mapping[str, Tensor]


class ActivationStore:
    """A folder of activations written by :func:`collect_activations`.

    Cost: opening it reads no activations; files are memory-mapped.

    Args:
        folder: the folder, with ``store.json``.
        shards: use only this many files, from the first.

    Example:
        >>> import tempfile
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> store = collect_activations(network, "1", torch.randn(3, 10, 4), tempfile.mkdtemp())
        >>> len(store), store.d, store.read([0, 29]).shape
        (30, 8, torch.Size([2, 8]))
    """

    def __init__(self, folder: str | Path, shards: int | None = None) -> None:
        self.folder = Path(folder)
        path = self.folder / _STORE
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
        path = self.folder / _FILES[kind].format(number)
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
                f"ActivationStore: {path} has the shape {array.shape}, {_STORE} says d = {self.d}"
            )
        if kind != "tokens" and len(array) != self.shard_rows[number]:
            raise ValueError(
                f"ActivationStore: {path} has {len(array)} rows, {_STORE} says {self.shard_rows[number]}"
            )
        return array


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise ValueError(f"a size must be a whole number ≥ 0, got {value!r}")
    return value


def collect_activations(
    model: nn.Module,
    hook_point: str,
    batches: Iterable[Batch],
    folder: str | Path,
    *,
    skip_positions: int = 0,
    largest_norm: float | None = None,
    batches_per_shard: int = 64,
    dtype: Dtype = "float32",
    about: Mapping[str, Any] | None = None,
    report: Callable[[str, float], None] | None = None,
) -> ActivationStore:
    """Run a network on batches and write the output of one of its modules to disk.

    Cost: the network up to the module, on every batch; memory for one shard.

    Args:
        model: any module; it is called in evaluation mode, without gradients.
        hook_point: the name of one of its modules, as in ``model.named_modules()``.
        batches: inputs, the same in each call: tensors, which are the first argument, or mappings of keyword
            arguments, where ``attention_mask`` marks padding. Integer inputs (``input_ids``) are stored as
            the tokens of the activations.
        folder: created if necessary; a collection that was stopped resumes there.
        skip_positions: leave out this many first tokens of each sequence.
        largest_norm: leave out vectors whose norm is more than this many times the median (of the first
            shard).
        batches_per_shard: batches per file; this many are in memory at once.
        dtype: dtype of the files.
        about: further facts that must be equal for a collection to resume, such as the names of model and
            text.
        report: called with a description of the current work and the share that is done.

    Returns:
        The :class:`ActivationStore`.

    Example:
        >>> import tempfile
        >>> network = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8))
        >>> tokens = [torch.arange(9).view(3, 3)]
        >>> store = collect_activations(network, "0", tokens, tempfile.mkdtemp(), skip_positions=1)
        >>> len(store), store.context(2)
        (6, ([3, 4, 5], 1))
    """
    name = "collect_activations"
    modules = dict(model.named_modules())  # pyright: ignore[reportUnknownArgumentType]
    if hook_point not in modules or not hook_point:
        near = [known for known in modules if known and known.split(".")[-1] == hook_point.split(".")[-1]]
        raise ValueError(
            f"{name}: hook_point must be the name of a module, got {hook_point!r}; "
            f"there are {', '.join((near or [known for known in modules if known])[:8])}, …"
        )
    if dtype not in ("float16", "float32"):
        raise ValueError(f"{name}: dtype must be 'float16' or 'float32', got {dtype!r}")
    if skip_positions < 0 or batches_per_shard < 1:
        raise ValueError(
            f"{name}: skip_positions must be ≥ 0 and batches_per_shard ≥ 1, got {skip_positions} and "
            f"{batches_per_shard}"
        )
    if largest_norm is not None and not largest_norm > 0:
        raise ValueError(f"{name}: largest_norm must be > 0, got {largest_norm}")
    folder = Path(folder)
    settings = {
        "hook_point": hook_point,
        "skip_positions": skip_positions,
        "largest_norm": largest_norm,
        "batches_per_shard": batches_per_shard,
        "dtype": dtype,
        **(about or {}),
    }
    document = _started(name, folder, settings)
    shard_rows: list[int] = document["shard_rows"]
    total = len(batches) if isinstance(batches, Sized) else None
    done = len(shard_rows) * batches_per_shard
    parts: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def finish() -> None:
        _write_shard(folder, document, parts, dtype, largest_norm)
        parts.clear()

    if document["finished"] and (total is None or total <= done):
        return ActivationStore(folder)
    was_training = model.training
    model.eval()
    try:
        for number, batch in enumerate(batches):
            if number < done:
                continue
            if report is not None:
                report(f"batch {number}, {sum(shard_rows)} vectors", number / total if total else 0.0)
            parts.append(_vectors(name, model, modules[hook_point], batch, skip_positions))
            if len(parts) == batches_per_shard:
                finish()
        if parts:
            finish()
    finally:
        model.train(was_training)
    if not sum(shard_rows):
        raise ValueError(f"{name}: batches gave no vectors")
    write_json({**document, "finished": True}, folder / _STORE)
    return ActivationStore(folder)


class _Answered(Exception):
    """The module has answered; the rest of the network need not be computed."""


def _vectors(
    name: str, model: nn.Module, module: nn.Module, batch: Batch, skip: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The output of the module (…, d), which of its vectors are wanted, and the tokens if there are."""
    caught: list[Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        first = cast(Any, output[0] if isinstance(output, tuple) else output)
        if not isinstance(first, Tensor) or not first.is_floating_point() or first.dim() < 2:
            raise TypeError(f"{name}: hook_point must give vectors, got {type(first).__name__}")
        caught.append(first.detach())
        raise _Answered

    handle = module.register_forward_hook(hook)
    try:
        with torch.inference_mode():
            model(**batch) if isinstance(batch, Mapping) else model(batch)
    except _Answered:
        pass
    finally:
        handle.remove()
    if not caught:
        raise ValueError(f"{name}: hook_point is not reached when the network is called")
    vectors = caught[0].float().cpu()
    inputs = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    places = vectors.shape[:-1]
    wanted = torch.ones(places, dtype=torch.bool)
    if skip and len(places) > 1:
        wanted[:, :skip] = False
    padding = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    if padding is not None and padding.shape == places:
        wanted &= padding.cpu().bool()
    is_text = isinstance(inputs, Tensor) and not inputs.is_floating_point() and inputs.shape == places
    return vectors, wanted, inputs.cpu() if is_text and inputs is not None and inputs.dim() == 2 else None


def _write_shard(
    folder: Path,
    document: dict[str, Any],
    parts: list[tuple[Tensor, Tensor, Tensor | None]],
    dtype: Dtype,
    largest_norm: float | None,
) -> None:
    """Write a shard, then ``store.json``, which alone makes it count."""
    number = len(document["shard_rows"])
    vectors = torch.cat([part[0].flatten(0, -2) for part in parts])
    wanted = torch.cat([part[1].flatten() for part in parts])
    norms = row_norms(vectors)
    if largest_norm is not None:
        if document["norm_limit"] is None:
            document["norm_limit"] = largest_norm * float(torch.median(norms[wanted]))
        wanted &= norms <= document["norm_limit"]
    rows = torch.nonzero(wanted).flatten()
    with np.errstate(over="ignore"):  # said below, in words
        kept = vectors[rows].numpy().astype(dtype)
    if not np.isfinite(kept).all():
        raise ValueError(
            f"collect_activations: activations do not fit in {dtype}, "
            f"the largest norm is {float(norms.max()):.3g}"
        )
    tokens = [part[2] for part in parts]
    same = all(t is not None and t.shape[1] == cast(Tensor, tokens[0]).shape[1] for t in tokens)
    text = torch.cat(cast("list[Tensor]", tokens)) if same else torch.empty(0, 0)
    arrays: dict[str, NDArray[Any]] = {
        "activations": kept,
        "rows": rows.numpy().astype(np.int32),
        "tokens": text.numpy().astype(np.int32),
    }
    for kind, array in arrays.items():
        with replacing(folder / _FILES[kind].format(number)) as temporary, temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
    document["d"] = kept.shape[1]
    document["shard_rows"].append(len(kept))
    write_json(document, folder / _STORE)


def _started(name: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What ``store.json`` says of a collection with these settings, or what a new one starts with."""
    path = folder / _STORE
    if not path.is_file():
        return {"about": dict(settings), "d": 0, "norm_limit": None, "shard_rows": [], "finished": False}
    store = ActivationStore(folder)
    for field, value in settings.items():
        if store.about.get(field) != value:
            raise ValueError(
                f"{name}: {path} is of a collection with {field} = "
                f"{json.dumps(store.about.get(field))}, asked for "
                f"{json.dumps(value)}; choose another folder"
            )
    document = read_object(path, name)
    return {**document, "finished": bool(document.get("finished"))}
