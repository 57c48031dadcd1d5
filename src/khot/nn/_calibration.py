"""A layer's temperature from a batch of scores: found, checked, and made common to all processes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from khot.calibration import calibrate_temperature
from khot.relaxations.registry import Relaxation

__all__ = ["check_calibrate", "common_temperature"]

_CURE = "give temperature=, or call layer.calibrate_(scores) later, with scores of a trained scorer"


def check_calibrate(name: str, spec: Relaxation, share: float, argument: str = "calibrate") -> None:
    """Raise unless it is a share that can be had of this method."""
    if isinstance(share, bool) or not isinstance(share, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be a number, got {share!r}")
    if not 0 < share < 1:
        raise ValueError(f"{name}: {argument} must lie between 0 and 1, got {share}")
    if spec.stochastic:
        raise ValueError(
            f"{name}: {argument} needs a method without randomness, got {spec.name!r}; give temperature="
        )


def common_temperature(name: str, scores: Tensor, k: float | Tensor, **settings: Any) -> float:
    """The temperature of :func:`khot.calibrate_temperature`; of a process group, the geometric mean.

    Every process takes part even if it finds none: one that raised alone would leave the others waiting.
    """
    failure: ValueError | None = None
    log_temperature = math.nan
    try:
        log_temperature = math.log(calibrate_temperature(scores, k, **settings))
    except ValueError as error:
        failure = error
    log_temperature = _mean_over_processes(log_temperature, scores.device)
    if failure is not None:
        raise ValueError(f"{name}: {failure}; {_CURE}") from failure
    if math.isnan(log_temperature):
        raise ValueError(f"{name}: there is no such temperature for the scores of another process; {_CURE}")
    return math.exp(log_temperature)


def _mean_over_processes(value: float, device: torch.device) -> float:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)  # pyright: ignore[reportUnknownMemberType]
    return total.item() / torch.distributed.get_world_size()
