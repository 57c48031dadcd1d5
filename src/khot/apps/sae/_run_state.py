"""The state of a training run: everything that a step changes, and that a stopped run resumes from."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.settings import TrainSettings
from khot.vision.tensor_files import read_tensors, write_tensors
from khot.whole_files import write_json

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
        write_tensors({**tensors, "idle": self.idle}, about, path)
        write_json(dataclasses.asdict(self.settings), path.parent / "settings.json")

    def restore(self, path: Path) -> None:
        """Load the state of a stopped run; a `ValueError` if its settings differ."""
        tensors, about = read_tensors(path)
        if not {"run", "history", "done"} <= set(about):
            raise ValueError(f"train: {path} is not the state of a run")
        for name, value in self._run().items():
            if about["run"].get(name) != value and name != "checkpoint_steps":
                raise ValueError(
                    f"train: {path} is of a run with {name} = {json.dumps(about['run'].get(name))}, "
                    f"asked for {json.dumps(value)}; choose another folder"
                )
        own = self._tensors()
        moments: dict[int, dict[str, Tensor]] = {}
        with torch.no_grad():
            for name, tensor in tensors.items():
                part, _, rest = name.partition(".")
                if part == "model":
                    own[rest].copy_(tensor)
                elif part == "optimizer":
                    index, _, moment = rest.partition(".")
                    moments.setdefault(int(index), {})[moment] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.idle.copy_(tensors["idle"])
        self.history, self.done = about["history"], int(about["done"])

    def _run(self) -> dict[str, Any]:
        """What must be the same for a run to go on, as JSON gives it back."""
        asked = {**dataclasses.asdict(self.settings), "store": self.store.about, "rows": len(self.store)}
        return json.loads(json.dumps(asked))

    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self.autoencoder.named_parameters()), **dict(self.autoencoder.named_buffers())}
