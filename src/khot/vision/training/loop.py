"""The training loop: resumable, in one process or in several started by torchrun."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from khot.files.tensors import check_safetensors
from khot.files.whole import check_writable, replacing, write_json
from khot.relaxations._plain_arguments import check_path, check_switch
from khot.vision.checkpoints import save_network
from khot.vision.data import FolderImages, ImageTensors, load
from khot.vision.models import Network, from_config
from khot.vision.training.evaluation import evaluate
from khot.vision.training.processes import Processes, joined_processes, whole
from khot.vision.training.run_config import RunConfig
from khot.vision.training.settings import TrainSettings
from khot.vision.training.state import restore_state, save_state

__all__ = ["load_data", "train"]

Images = ImageTensors | FolderImages
Report = Callable[[str, float], None]


def train(
    config: RunConfig,
    output: str | Path,
    *,
    data: tuple[Images, Images] | None = None,
    data_dir: str | Path | None = None,
    device: str | None = None,
    sharded: bool = False,
    report: Report = lambda message, share: None,
) -> dict[str, Any]:
    """Train a network, or resume a run that was stopped.

    The folder then contains `config.json` and `model.safetensors` (see :func:`khot.vision.load_network`),
    `metrics.csv` with a line for each epoch, `results.json`, and `state.safetensors` to resume from. A
    stopped and resumed run gives, on the same machine, exactly the same weights. Under torchrun, each process
    takes its share of every batch and has a replica of the network (DDP), or a part of it (FSDP2); a run may
    be stopped with one and resumed with the other.

    Args:
        config: the network and the training settings.
        output: the folder to write to.
        data: training and test images; by default those named by ``config.training.data``.
        data_dir: the data folder, see :func:`khot.vision.data.load`.
        device: the device to train on; by default the GPU of this process if there is one, else the CPU.
        sharded: whether each of several processes keeps only its part of the parameters and moments (FSDP2).
        report: called with a description of the current work and the share that is done.

    Returns:
        The content of `results.json`: the configuration, the number of parameters and the metrics.

    Example:
        >>> import tempfile
        >>> from khot.vision.training import run_preset
        >>> config = run_preset("digits").changed({"depth": 1, "width": 16}, {"epochs": 1})
        >>> results = train(config, tempfile.mkdtemp())
        >>> sorted(results)
        ['epochs', 'network', 'parameters', 'seconds', 'test_loss', 'top1', 'top5', 'training']
    """
    if not isinstance(config, RunConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"train: config must be a RunConfig, got {type(config).__name__}")
    check_path("train", "output", output)
    output = Path(output)
    check_switch("train", "sharded", sharded)
    check_safetensors()  # now, rather than after the first epoch
    with joined_processes() as processes, _kept_random_state():
        if processes.leads:
            check_writable("train", "output", output)
        where = processes.device(device)
        train_data, test_data = data or load_data(config, data_dir)
        config.check_fits(train_data)
        return _Run(config, output, train_data, test_data, processes, where, sharded, report).to_the_end()


def load_data(config: RunConfig, data_dir: str | Path | None = None) -> tuple[Images, Images]:
    """Training and test images; pictures from a folder have the size that the network needs."""
    return _half(config, True, data_dir), _half(config, False, data_dir)


def _half(config: RunConfig, training: bool, data_dir: str | Path | None) -> Images:
    data = load(config.training.data, training, data_dir)
    if not isinstance(data, FolderImages):
        return data
    height, width = config.network.image_hw
    if height != width:
        raise ValueError(f"train: network.image_size must be a square for pictures, got {height, width}")
    return data.resized(height, config.network.channels)


@contextlib.contextmanager
def _kept_random_state() -> Generator[None]:
    """The caller's random numbers are afterwards what they would have been."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


class _Run:
    """A network on its way through the epochs."""

    def __init__(
        self,
        config: RunConfig,
        output: Path,
        train_data: Images,
        test_data: Images,
        processes: Processes,
        device: torch.device,
        sharded: bool,
        report: Report,
    ) -> None:
        self.config = config
        self.settings = config.training
        self.output = output
        self.train_data = train_data
        self.test_data = test_data
        self.processes = processes
        self.device = device
        self.report = report
        self.batch_size = min(self.settings.batch_size, len(train_data))
        if self.batch_size % processes.count:
            raise ValueError(
                f"train: training.batch_size must be a multiple of the {processes.count} processes, "
                f"got {self.batch_size}"
            )
        self.steps = len(train_data) // self.batch_size
        torch.default_generator.manual_seed(self.settings.seed)
        self.model = from_config(config.network).to(device)
        if sharded:
            processes.shard_(self.model, device)
        self.optimizer = _optimizer(self.model, self.settings)
        torch.default_generator.manual_seed(self.settings.seed + processes.rank)
        self.position = restore_state(output, config, self.model, self.optimizer, processes)
        self.replica = self.model if sharded else processes.replicated(self.model)

    def to_the_end(self) -> dict[str, Any]:
        """All epochs that are left, and the results."""
        while self.position.epoch < self.settings.epochs:
            self._finish_epoch()
        results = self._results()
        if self.processes.leads:
            write_json(results, self.output / "results.json")
        self.report("done", 1.0)
        return results

    def _finish_epoch(self) -> None:
        position, began = self.position, time.perf_counter()
        seconds_before = position.seconds
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + position.epoch)
        order = torch.randperm(len(self.train_data), generator=generator)
        self.replica.train()
        while position.step < self.steps:
            position.loss_sum += self._step(order)
            position.step += 1
            position.seconds = seconds_before + time.perf_counter() - began
            every = self.settings.checkpoint_steps
            if every and position.step % every == 0 and position.step < self.steps:
                self._save_state()
        measured = evaluate(
            self.model, self.test_data, self.batch_size, self.settings.bfloat16, self.processes
        )
        loss_sum = self.processes.summed(torch.tensor(position.loss_sum, dtype=torch.float64)).item()
        position.seconds = seconds_before + time.perf_counter() - began
        position.history.append(
            {
                "epoch": position.epoch + 1,
                "train_loss": loss_sum / (self.steps * self.processes.count),
                **{name if name != "loss" else "test_loss": value for name, value in measured.items()},
                "seconds": round(position.seconds, 3),
            }
        )
        position.epoch, position.step, position.loss_sum = position.epoch + 1, 0, 0.0
        weights = {name: whole(tensor) for name, tensor in self.model.state_dict().items()}
        if self.processes.leads:
            save_network(self.model, self.output, weights)
            _write_csv(position.history, self.output / "metrics.csv")
        self._save_state()  # last: a run that is stopped before this line writes those files again

    def _step(self, order: Tensor) -> float:
        settings, position = self.settings, self.position
        share = self.batch_size // self.processes.count
        start = position.step * self.batch_size + self.processes.rank * share
        noise = torch.default_generator if settings.augment else None
        images, labels = self.train_data.batch(order[start : start + share], noise)
        images, labels = images.to(self.device), labels.to(self.device)
        images, targets = _mixed(images, labels, self.config.network.classes, settings.mixup)
        done = position.epoch * self.steps + position.step
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate_at(done, self.steps)
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=settings.bfloat16):
            logits = self.replica(images)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(logits, targets, label_smoothing=settings.label_smoothing)
        if not torch.isfinite(loss):
            raise ValueError(
                f"train: the loss is {loss.item()} in epoch {position.epoch + 1}, step {position.step + 1}; "
                "a smaller learning_rate may help"
            )
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        if settings.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        self.optimizer.step()
        message = f"epoch {position.epoch + 1} of {settings.epochs}, loss {loss.item():.3f}"
        self.report(message, (done + 1) / (settings.epochs * self.steps))
        return loss.item()

    def _save_state(self) -> None:
        save_state(self.output, self.config, self.model, self.optimizer, self.position, self.processes)

    def _results(self) -> dict[str, Any]:
        last = self.position.history[-1]
        return {
            **self.config.to_dict(),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "epochs": self.position.history,
            **{name: last[name] for name in ("test_loss", "top1", "top5", "seconds")},
        }


def _optimizer(model: Network, settings: TrainSettings) -> torch.optim.Optimizer:
    named = list(model.named_parameters())
    plain = {"cls_token", "pos_embed"}
    decayed = [p for name, p in named if p.ndim > 1 and name not in plain]
    others = [p for name, p in named if p.ndim <= 1 or name in plain]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def _mixed(images: Tensor, labels: Tensor, classes: int, alpha: float) -> tuple[Tensor, Tensor]:
    """Mixup: each image with another of the batch, targets likewise."""
    if not alpha:
        return images, labels
    share = torch.distributions.Beta(alpha, alpha).sample().to(images.device)
    partner = torch.randperm(len(images)).to(images.device)
    targets = F.one_hot(labels, classes).to(images.dtype)
    return torch.lerp(images[partner], images, share), torch.lerp(targets[partner], targets, share)


def _write_csv(history: list[dict[str, float]], path: Path) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(history[0]))
        writer.writeheader()
        writer.writerows(history)
