r"""Collect the activations of a network at a hook point: what sparse autoencoders are trained on.

:func:`collect_activations` runs a network on batches, takes the output of one of its modules, and writes
the vectors of all tokens to a folder that :class:`khot.apps.sae.ActivationStore` reads. Some batches make one
file (a *shard*), so that memory holds one shard, and a collection that was stopped can resume. Layers after
the module are not computed. You can leave out first tokens, padding, and the few tokens of very large norm
that many language models have (attention sinks).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from khot.apps.sae._decoder_norms import row_norms
from khot.apps.sae.activations import SHARD, STORE, ActivationStore
from khot.files.untrusted import read_object
from khot.files.whole import check_writable, replacing, write_json
from khot.relaxations._plain_arguments import check_choice, check_integer, is_number

__all__ = ["collect_activations"]

Dtype = Literal["float16", "float32"]
Batch = Tensor | Mapping[str, Tensor]


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
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: model must be a torch module, got {model!r}")
    if not isinstance(hook_point, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: hook_point must be a text, got {hook_point!r}")
    if not isinstance(batches, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: batches must be batches of inputs, got {batches!r}")
    modules = dict(model.named_modules())  # pyright: ignore[reportUnknownArgumentType]
    if hook_point not in modules or not hook_point:
        near = [known for known in modules if known and known.split(".")[-1] == hook_point.split(".")[-1]]
        raise ValueError(
            f"{name}: hook_point must be the name of a module, got {hook_point!r}; "
            f"there are {', '.join((near or [known for known in modules if known])[:8])}, …"
        )
    check_choice(name, "dtype", dtype, get_args(Dtype))
    check_integer(name, "skip_positions", skip_positions, least=0)
    check_integer(name, "batches_per_shard", batches_per_shard)
    if largest_norm is not None and not (is_number(largest_norm) and 0 < largest_norm < math.inf):
        raise ValueError(f"{name}: largest_norm must be a finite number > 0, got {largest_norm!r}")
    # As JSON takes them, which lacks NumPy's.
    skip_positions, batches_per_shard = int(skip_positions), int(batches_per_shard)
    largest_norm = None if largest_norm is None else float(largest_norm)
    try:
        json.dumps(about, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: about must be what JSON can hold, got {about!r}: {error}") from error
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
    check_writable(name, "folder", folder)  # now, rather than after the first shard
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
    write_json({**document, "finished": True}, folder / STORE)
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
        with replacing(folder / SHARD[kind].format(number)) as temporary, temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
    document["d"] = kept.shape[1]
    document["shard_rows"].append(len(kept))
    write_json(document, folder / STORE)


def _started(name: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What ``store.json`` says of a collection with these settings, or what a new one starts with."""
    path = folder / STORE
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
