"""The state of a run on disk: one safetensors file with everything needed to resume it exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from khot.vision.checkpoints import load_weights
from khot.vision.models import Network
from khot.vision.tensor_files import read_tensors, write_tensors
from khot.vision.training.processes import Processes, placed_like, whole
from khot.vision.training.run_config import RunConfig

__all__ = ["Position", "restore_state", "save_state", "state_path"]

_PARTS = ("model", "optimizer", "rng")


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
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    own = model.state_dict()
    weights = {name: placed_like(t, own.get(name, t)) for name, t in parts["model"].items()}
    load_weights(model, weights, str(path))
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        index, _, rest = name.partition(".")
        moments.setdefault(int(index), {})[rest] = placed_like(tensor, parameters[int(index)])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    torch.set_rng_state(parts["rng"][str(processes.rank)])
    return Position(**about["position"])


def _check_same_run(path: Path, asked: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    for part, fields in asked.items():
        for name, value in cast("dict[str, Any]", fields).items():
            before = cast("dict[str, Any]", saved[part]).get(name)
            if before != value:
                raise ValueError(
                    f"train: {path} is of a run with {part}.{name} = {json.dumps(before)}, asked for "
                    f"{json.dumps(value)}; choose another folder"
                )
