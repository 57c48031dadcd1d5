"""Train a sparse autoencoder on a folder of activations; a stopped and resumed run gives the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from khot.apps.sae._run_state import RunState
from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.batches import ShuffledActivations
from khot.apps.sae.settings import TrainSettings
from khot.files.tensors import check_safetensors
from khot.files.whole import check_writable
from khot.relaxations._plain_arguments import check_integer

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
    """Train a sparse autoencoder on stored activations.

    Activations are standardised for training, with their mean and one scale. The returned autoencoder has
    this folded into its weights, so it takes activations without standardisation. Cost: ``steps`` times
    O(batch_size · num_latents · d).

    Args:
        store: see :func:`khot.apps.sae.collect_activations`.
        settings: the settings of the run.
        output: a folder for the state; a stopped run with the same settings resumes there.
        report: called with a description of the current work and the share that is done.
        stop_after: take at most this many steps now, and return the current autoencoder.

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
    for argument, value, kind in (("store", store, ActivationStore), ("settings", settings, TrainSettings)):
        if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"train: {argument} must be of the type {kind.__name__}, got {value!r}")
    if stop_after is not None:
        check_integer("train", "stop_after", stop_after, least=0)
    if output is not None:  # now, rather than after the first steps
        check_safetensors()
        check_writable("train", "output", Path(output))
    mean, scale = standardisation(store)
    run = RunState.start(store, settings)
    path = None if output is None else Path(output) / _STATE
    if path is not None and path.is_file():
        run.restore(path)
    batches = ShuffledActivations(store, settings.batch_size, seed=settings.seed)
    last = settings.steps if stop_after is None else min(run.done + stop_after, settings.steps)
    every = max(settings.steps // _POINTS, 1)
    history = run.history
    while run.done < last:
        started = time.perf_counter()
        fvu, l0 = run.step((batches[run.done] - mean) * scale)
        history["seconds"] += time.perf_counter() - started
        if run.done % every == 0 or run.done == settings.steps:
            dead = (run.idle >= settings.dead_after).float().mean().item()
            for name, value in (("step", run.done - 1), ("fvu", fvu), ("l0", l0), ("dead", dead)):
                history[name].append(value)
            if report is not None:
                report(f"step {run.done}, FVU {fvu:.3f}, dead {dead:.1%}", run.done / settings.steps)
        due = settings.checkpoint_steps and run.done % settings.checkpoint_steps == 0
        if path is not None and (due or run.done == last):
            run.keep(path)
    autoencoder = run.autoencoder
    autoencoder.anneal(1.0)
    autoencoder.fold_standardisation_(mean, scale)
    autoencoder.eval()
    if settings.activation == "batch_topk":
        autoencoder.fit_threshold(store.read(_sampled(len(store))))
    return autoencoder, history


def standardisation(store: ActivationStore) -> tuple[Tensor, float]:
    """The mean and the scale that standardise activations to mean 0 and a mean squared norm of d."""
    sample = store.read(_sampled(len(store))).double()
    mean = sample.mean(0)
    spread = (sample - mean).square().sum(-1).mean().item()
    if not spread > 0:
        raise ValueError("train: all activations are equal")
    return mean.float(), (store.d / spread) ** 0.5


def _sampled(count: int) -> Tensor:
    """Places spread evenly over a store."""
    return torch.linspace(0, count - 1, min(count, _SAMPLE), dtype=torch.float64).long()
