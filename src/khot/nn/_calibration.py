"""A layer's temperature from a batch of scores: found, checked, and made common to all processes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from khot.calibration import calibrate_temperature
from khot.relaxations.registry import Relaxation

__all__ = ["CURE", "check_calibrate", "common_temperature"]

CURE = "give temperature=, or call layer.calibrate_(scores) later, with scores of a trained scorer"


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


def common_temperature(
    name: str, scores: Tensor, k: float | Tensor, *, dim: int, **settings: Any
) -> float | None:
    """The temperature of :func:`khot.calibrate_temperature`; of a process group, the geometric mean.

    Every process takes part even if it finds none: one that raised alone would leave the others waiting.
    Where k takes all n entries the temperature changes nothing: such scores have no say, and if no process
    has others, it is None.
    """
    failure: ValueError | None = None
    decides = not float(k) >= scores.shape[dim]
    log_temperature = math.nan
    try:
        log_temperature = math.log(calibrate_temperature(scores, k, dim=dim, **settings)) if decides else 0.0
    except ValueError as error:
        failure = error
    log_temperature, voices = _sum_over_processes(log_temperature, float(decides), device=scores.device)
    if failure is not None:
        raise ValueError(f"{name}: {failure}; {CURE}") from failure
    if math.isnan(log_temperature):
        raise ValueError(f"{name}: there is no such temperature for the scores of another process; {CURE}")
    return math.exp(log_temperature / voices) if voices else None


def _sum_over_processes(*values: float, device: torch.device) -> tuple[float, ...]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return values
    total = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)  # pyright: ignore[reportUnknownMemberType]
    return tuple(number.item() for number in total)
