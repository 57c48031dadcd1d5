"""The state of a training run: everything that a step changes, and that a stopped run resumes from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.settings import TrainSettings
from khot.files.tensors import check_fits, optimizer_moments, read_tensors, tensor_writer
from khot.files.whole import json_writer, write_together

__all__ = ["RunState"]


@dataclass
class RunState:
    """The autoencoder in training, and the state of the run.

    Args:
        store: the training data.
        settings: the settings of the run.
        autoencoder: the autoencoder, for standardised activations.
        optimizer: the optimiser of its parameters.
        idle: for each latent, the number of tokens since it was last active.
        history: see :func:`khot.apps.sae.train`.
        done: the number of steps taken.
    """

    store: ActivationStore
    settings: TrainSettings
    autoencoder: SparseAutoencoder
    optimizer: torch.optim.Optimizer
    idle: Tensor
    history: dict[str, Any] = field(
        default_factory=lambda: {"step": [], "fvu": [], "l0": [], "dead": [], "seconds": 0.0}
    )
    done: int = 0

    @classmethod
    def start(cls, store: ActivationStore, settings: TrainSettings) -> RunState:
        """The state before the first step; torch's global generator is not advanced."""
        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
            torch.manual_seed(settings.seed)  # pyright: ignore[reportUnknownMemberType]
            autoencoder = settings.autoencoder(store.d).train()
        optimizer = torch.optim.Adam(autoencoder.parameters(), lr=settings.learning_rate, fused=True)
        return cls(
            store, settings, autoencoder, optimizer, torch.zeros(settings.num_latents, dtype=torch.int64)
        )

    def step(self, x: Tensor) -> tuple[float, float]:
        """Take one step on standardised activations; returns its FVU and L0."""
        settings, autoencoder = self.settings, self.autoencoder
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate_at(self.done)
        autoencoder.anneal(settings.progress_at(self.done))
        dead = self.idle >= settings.dead_after if settings.auxk else None
        result = autoencoder(x, dead_mask=dead)
        self.optimizer.zero_grad()
        result.loss(auxk=settings.auxk).backward()
        if settings.unit_decoder:
            autoencoder.project_decoder_gradient_()
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), settings.clip)
        self.optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        if settings.unit_decoder:
            autoencoder.normalize_decoder_()
        self.idle += len(x)
        self.idle[result.latent_indices[result.latent_acts > 0]] = 0
        self.done += 1
        return result.fvu.item(), result.l0.item()

    def keep(self, path: Path) -> None:
        """Write the state, and a readable copy of the settings beside it."""
        tensors = {f"model.{name}": tensor for name, tensor in self._tensors().items()}
        moments = cast("dict[int, dict[str, Tensor]]", self.optimizer.state_dict()["state"])
        for index, parts in moments.items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in parts.items()}
        about = {"run": self._run(), "history": self.history, "done": self.done}
        write_together(
            {
                path: tensor_writer({**tensors, "idle": self.idle}, about),
                path.parent / "settings.json": json_writer(dataclasses.asdict(self.settings)),
            }
        )

    def restore(self, path: Path) -> None:
        """Load the state of a stopped run; a `ValueError` if its settings differ."""
        tensors, about = read_tensors(path)
        if not {"run", "history", "done"} <= set(about) or not isinstance(about["run"], Mapping):
            raise ValueError(f"train: {path} is not the state of a run")
        before = cast("Mapping[str, Any]", about["run"])
        for name, value in self._run().items():
            if before.get(name) != value and name != "checkpoint_steps":
                raise ValueError(
                    f"train: {path} is of a run with {name} = {json.dumps(before.get(name))}, "
                    f"asked for {json.dumps(value)}; choose another folder"
                )
        # Everything is checked before anything is loaded.
        history, done = self._progress(path, about)
        own = {**{f"model.{name}": tensor for name, tensor in self._tensors().items()}, "idle": self.idle}
        moments = {
            name.removeprefix("optimizer."): tensors.pop(name)
            for name in list(tensors)
            if name.startswith("optimizer.")
        }
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        state = optimizer_moments(moments, parameters, f"train: {path}")
        check_fits(own, tensors, f"train: {path}", "a run with these settings")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.history, self.done = history, done

    def _progress(self, path: Path, about: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The history and the number of steps as they were kept."""
        history, done = about["history"], about["done"]
        known = isinstance(history, dict) and set(cast("dict[str, Any]", history)) == set(self.history)
        if not known or not isinstance(done, int) or not 0 <= done <= self.settings.steps:
            raise ValueError(f"train: {path} has a history that no run with these settings can have")
        for name, value in cast("dict[str, Any]", history).items():
            if not isinstance(value, int | float if name == "seconds" else list):
                raise ValueError(f"train: {path} has a history whose {name} is {value!r}")
        return cast("dict[str, Any]", history), done

    def _run(self) -> dict[str, Any]:
        """What must be the same for a run to go on, as JSON gives it back."""
        asked = {**dataclasses.asdict(self.settings), "store": self.store.about, "rows": len(self.store)}
        return json.loads(json.dumps(asked))

    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self.autoencoder.named_parameters()), **dict(self.autoencoder.named_buffers())}
