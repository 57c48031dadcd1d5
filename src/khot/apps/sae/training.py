"""Training of a sparse autoencoder on a folder of activations: stopped at any time, it ends with the same
bits."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.batches import ShuffledActivations
from khot.apps.sae.settings import TrainSettings
from khot.vision.tensor_files import check_safetensors, read_tensors, write_tensors
from khot.whole_files import write_json

__all__ = ["standardisation", "train"]

_STATE = "state.safetensors"
_SAMPLE = 20_000
_POINTS = 200  # of the curves

Report = Callable[[str, float], None]


def train(
    store: ActivationStore,
    settings: TrainSettings,
    output: str | Path | None = None,
    *,
    report: Report | None = None,
    stop_after: int | None = None,
) -> tuple[SparseAutoencoder, dict[str, Any]]:
    """Train an autoencoder of a store's activations.

    Activations are standardised for training, by their mean and one scale, and the result is folded back: the
    autoencoder that is returned takes activations as they are.

    Args:
        store: see :func:`khot.apps.sae.collect_activations`.
        settings: how.
        output: a folder for the state; a run with the same settings that was stopped goes on there.
        report: is told what is being done and which share is done.
        stop_after: do at most so many steps now, and return what there is.

    Returns:
        The autoencoder in evaluation mode, and a history: ``step``, ``fvu``, ``l0`` and ``dead`` (a share)
        over training, and ``seconds``.

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8))
        >>> store = collect_activations(network, "0", torch.randn(5, 20, 4), tempfile.mkdtemp())
        >>> settings = TrainSettings(num_latents=16, k=2, steps=10, batch_size=32)
        >>> autoencoder, history = train(store, settings)
        >>> autoencoder.training, history["step"][-1]
        (False, 9)
    """
    if output is not None:
        check_safetensors()
    mean, scale = standardisation(store)
    torch.manual_seed(settings.seed)  # pyright: ignore[reportUnknownMemberType]
    autoencoder = settings.autoencoder(store.d)
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=settings.learning_rate, fused=True)
    idle = torch.zeros(settings.num_latents, dtype=torch.int64)  # tokens since a latent was active
    history: dict[str, Any] = {"step": [], "fvu": [], "l0": [], "dead": [], "seconds": 0.0}
    path = None if output is None else Path(output) / _STATE
    done = 0
    if path is not None and path.is_file():
        done = _restore(path, store, settings, autoencoder, optimizer, idle, history)
    batches = ShuffledActivations(store, settings.batch_size, seed=settings.seed)
    last = settings.steps if stop_after is None else min(done + stop_after, settings.steps)
    every = max(settings.steps // _POINTS, 1)
    autoencoder.train()
    for step in range(done, last):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate_at(step)
        autoencoder.anneal(settings.progress_at(step))
        result = _step(autoencoder, optimizer, (batches[step] - mean) * scale, idle, settings)
        history["seconds"] += time.perf_counter() - started
        if (step + 1) % every == 0 or step + 1 == settings.steps:
            dead = (idle >= settings.dead_after).float().mean().item()
            for name, value in (("step", step), ("fvu", result[0]), ("l0", result[1]), ("dead", dead)):
                history[name].append(value)
            if report is not None:
                report(f"step {step + 1}, FVU {result[0]:.3f}, dead {dead:.1%}", (step + 1) / settings.steps)
        if path is not None and (
            step + 1 == last or (settings.checkpoint_steps and (step + 1) % settings.checkpoint_steps == 0)
        ):
            _keep(path, store, settings, autoencoder, optimizer, idle, history, step + 1)
    autoencoder.anneal(1.0)
    autoencoder.fold_standardisation_(mean, scale)
    autoencoder.eval()
    if settings.activation == "batch_topk":
        autoencoder.fit_threshold(store.read(_sampled(len(store))))
    return autoencoder, history


def standardisation(store: ActivationStore) -> tuple[Tensor, float]:
    """The mean and the scale that give activations mean 0 and a squared norm of d in the mean."""
    sample = store.read(_sampled(len(store)))
    mean = sample.mean(0)
    spread = (sample - mean).square().sum(-1).mean().item()
    if not spread > 0:
        raise ValueError("train: all activations are equal")
    return mean, (store.d / spread) ** 0.5


def _sampled(count: int) -> Tensor:
    """Places spread evenly over a store."""
    return torch.linspace(0, count - 1, min(count, _SAMPLE)).long()


def _step(
    autoencoder: SparseAutoencoder,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    idle: Tensor,
    settings: TrainSettings,
) -> tuple[float, float]:
    """One step; its FVU and L0. ``idle`` is brought up to date."""
    dead = idle >= settings.dead_after if settings.auxk else None
    result = autoencoder(x, dead_mask=dead)
    optimizer.zero_grad()
    result.loss(auxk=settings.auxk).backward()
    if settings.unit_decoder:
        autoencoder.project_decoder_gradient_()
    if settings.clip:
        torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), settings.clip)
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    if settings.unit_decoder:
        autoencoder.normalize_decoder_()
    idle += len(x)
    idle[result.latent_indices[result.latent_acts > 0]] = 0
    return result.fvu.item(), result.l0.item()


def _keep(
    path: Path,
    store: ActivationStore,
    settings: TrainSettings,
    autoencoder: SparseAutoencoder,
    optimizer: torch.optim.Optimizer,
    idle: Tensor,
    history: dict[str, Any],
    done: int,
) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in _tensors(autoencoder).items()}
    moments = cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"])
    for index, parts in moments.items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in parts.items()}
    about = {"settings": dataclasses.asdict(settings), "store": store.about, "rows": len(store)}
    write_tensors({**tensors, "idle": idle}, {**about, "history": history, "done": done}, path)
    write_json(about["settings"], path.parent / "settings.json")


def _restore(
    path: Path,
    store: ActivationStore,
    settings: TrainSettings,
    autoencoder: SparseAutoencoder,
    optimizer: torch.optim.Optimizer,
    idle: Tensor,
    history: dict[str, Any],
) -> int:
    """Put the state of a stopped run in place; how many steps it has done."""
    tensors, about = read_tensors(path)
    if "settings" not in about or "done" not in about:
        raise ValueError(f"train: {path} is not the state of a run")
    asked = {**dataclasses.asdict(settings), "store": store.about, "rows": len(store)}
    saved = {**about["settings"], "store": about["store"], "rows": about["rows"]}
    for field, value in json.loads(json.dumps(asked)).items():
        if saved.get(field) != value and field != "checkpoint_steps":
            raise ValueError(
                f"train: {path} is of a run with {field} = {json.dumps(saved.get(field))}, asked for "
                f"{json.dumps(value)}; choose another folder"
            )
    own = _tensors(autoencoder)
    moments: dict[int, dict[str, Tensor]] = {}
    with torch.no_grad():
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            if part == "model":
                own[rest].copy_(tensor)
            elif part == "optimizer":
                index, _, moment = rest.partition(".")
                moments.setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    idle.copy_(tensors["idle"])
    history.update(about["history"])
    return int(about["done"])


def _tensors(autoencoder: SparseAutoencoder) -> dict[str, Tensor]:
    return {**dict(autoencoder.named_parameters()), **dict(autoencoder.named_buffers())}
