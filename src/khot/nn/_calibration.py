"""Set a layer's temperature from a batch of scores, to the same value in all processes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from khot.calibration import calibrate_temperature
from khot.relaxations._plain_arguments import check_number
from khot.relaxations.registry import Relaxation

__all__ = ["CURE", "check_calibrate", "common_temperature"]

CURE = "give temperature=, or call layer.calibrate_(scores) later, with scores of a trained scorer"


def check_calibrate(name: str, spec: Relaxation, share: float, argument: str = "calibrate") -> None:
    """Raise unless ``share`` lies between 0 and 1 and the method is not random."""
    check_number(name, argument, share)
    if not 0 < share < 1:
        raise ValueError(f"{name}: {argument} must lie between 0 and 1, got {share}")
    if spec.stochastic:
        raise ValueError(
            f"{name}: {argument} needs a method without randomness, got {spec.name!r}; give temperature="
        )


def common_temperature(
    name: str, scores: Tensor, k: float | Tensor, *, dim: int, **settings: Any
) -> float | None:
    """The temperature of :func:`khot.calibrate_temperature`; in a process group, the geometric mean over it.

    Every process takes part even if its own calibration fails: if one raised alone, the others would wait
    forever. Where k is at least n the temperature has no effect, so those scores do not count. The result is
    None if no process has scores that count.
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
