"""The state of a run on disk: one safetensors file with everything needed to resume it exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from khot.files.tensors import optimizer_moments, read_tensors, write_tensors
from khot.vision.checkpoints import load_weights
from khot.vision.models import Network
from khot.vision.training.processes import Processes, placed_like, whole
from khot.vision.training.run_config import RunConfig

__all__ = ["Position", "restore_state", "save_state", "state_path"]

_PARTS = ("model", "optimizer", "rng")
_MEASURED = {"epoch", "train_loss", "test_loss", "top1", "top5", "seconds"}


@dataclass
class Position:
    """The progress of a run.

    Args:
        epoch: the number of finished epochs.
        step: the number of finished steps in the current epoch.
        loss_sum: the sum of the losses of these steps.
        seconds: the time spent so far.
        history: the metrics of each epoch.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=lambda: list[dict[str, float]]())


def state_path(output: Path) -> Path:
    """The path of the state of a run."""
    return output / "state.safetensors"


def save_state(
    output: Path,
    config: RunConfig,
    model: Network,
    optimizer: torch.optim.Optimizer,
    position: Position,
    processes: Processes,
) -> None:
    """Save the whole state, wherever its parts are; every process must call this, the first one writes."""
    tensors = {f"rng.{rank}": rng for rank, rng in enumerate(processes.gathered(torch.get_rng_state()))}
    tensors |= {f"model.{name}": whole(tensor) for name, tensor in model.state_dict().items()}
    moments = cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"])
    for index, of_parameter in moments.items():
        tensors |= {f"optimizer.{index}.{name}": whole(tensor) for name, tensor in of_parameter.items()}
    if not processes.leads:
        return
    about = {"config": config.to_dict(), "position": asdict(position), "processes": processes.count}
    write_tensors(tensors, about, state_path(output))


def restore_state(
    output: Path,
    config: RunConfig,
    model: Network,
    optimizer: torch.optim.Optimizer,
    processes: Processes,
) -> Position:
    """Load the state in ``output``, if there is one, into model, optimizer and random generators."""
    path = state_path(output)
    if not path.is_file():
        return Position()
    tensors, about = read_tensors(path)
    if not {"config", "position", "processes"} <= set(about):
        raise ValueError(f"train: {path} is not the state of a run")
    _check_same_run(path, config.to_dict(), about["config"])
    if about["processes"] != processes.count:
        raise ValueError(
            f"train: {path} was written by {about['processes']} processes, there are {processes.count} now"
        )
    # Everything is checked before anything is loaded.
    position = _position(path, config, about["position"])
    parts = _parts(path, tensors)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    found = optimizer_moments(parts["optimizer"], parameters, f"train: {path}")
    moments = {
        number: {name: placed_like(tensor, parameters[number]) for name, tensor in of_parameter.items()}
        for number, of_parameter in found.items()
    }
    rng = _random_state(path, parts["rng"].get(str(processes.rank)))
    own = model.state_dict()
    weights = {name: placed_like(t, own.get(name, t)) for name, t in parts["model"].items()}
    load_weights(model, weights, str(path))
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    torch.set_rng_state(rng)
    return position


def _parts(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts:
            raise ValueError(f"train: {path} has {name}, which the state of a run lacks")
        parts[part][rest] = tensor
    return parts


def _random_state(path: Path, kept: Tensor | None) -> Tensor:
    try:
        if kept is None:
            raise TypeError("it is missing")
        torch.Generator().set_state(kept)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"train: {path} has no random state for this process ({error})") from error
    return kept


def _position(path: Path, config: RunConfig, kept: Any) -> Position:
    """The progress as it was kept; a `ValueError` if no run with these settings can have made it."""
    try:
        position = Position(**kept)
        if (
            type(position.epoch) is type(position.step) is int
            and 0 <= position.epoch <= config.training.epochs
            and position.step >= 0
            and float(position.loss_sum) == position.loss_sum
            and float(position.seconds) >= 0
            and len(position.history) == position.epoch
            and all(set(row) >= _MEASURED for row in position.history)
        ):
            return position
    except (TypeError, ValueError):
        pass
    raise ValueError(f"train: {path} has a position that no run can have: {json.dumps(kept)[:200]}")


def _check_same_run(path: Path, asked: Mapping[str, Any], saved: Any) -> None:
    for part, fields in asked.items():
        kept = cast("Mapping[str, Any]", saved).get(part) if isinstance(saved, Mapping) else None
        if not isinstance(kept, Mapping):
            raise ValueError(f"train: {path} is not the state of a run")
        for name, value in cast("dict[str, Any]", fields).items():
            before = cast("Mapping[str, Any]", kept).get(name)
            if before != value:
                raise ValueError(
                    f"train: {path} is of a run with {part}.{name} = {json.dumps(before)}, asked for "
                    f"{json.dumps(value)}; choose another folder"
                )
