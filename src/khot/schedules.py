"""Temperature schedules: from soft to hard while training.

A schedule is a function of the step. Give its value as ``temperature=`` to any operator, or let a
:class:`TemperatureScheduler` set it on every layer of a model that has one.

    >>> schedule = cosine(1.0, 0.1, steps=100)
    >>> round(schedule(0), 3), round(schedule(50), 3), round(schedule(1000), 3)
    (1.0, 0.55, 0.1)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from khot.relaxations._arguments import within_range

__all__ = ["Schedule", "TemperatureScheduler", "constant", "cosine", "exponential"]

#: A function of the step that gives the temperature; any callable will do.
Schedule = Callable[[int], float]


def constant(temperature: float) -> Schedule:
    """The same temperature at every step.

    Args:
        temperature: > 0.

    Example:
        >>> constant(0.5)(0), constant(0.5)(1000)
        (0.5, 0.5)
    """
    _check("constant", "temperature", temperature)
    return lambda step: temperature


def exponential(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    """From ``start`` to ``end`` by the same factor at every step, and ``end`` ever after.

    Args:
        start: the temperature at first.
        end: the temperature after ``warmup + steps`` steps.
        steps: how many steps that takes.
        warmup: how many steps to stay at ``start`` before.

    Example:
        >>> [round(exponential(1.0, 0.01, steps=2)(step), 3) for step in range(4)]
        [1.0, 0.1, 0.01, 0.01]
    """
    _check_range("exponential", start, end, steps, warmup)
    return lambda step: start * (end / start) ** _progress(step, steps, warmup)


def cosine(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    """From ``start`` to ``end`` along half a cosine, and ``end`` ever after.

    Args:
        start: the temperature at first.
        end: the temperature after ``warmup + steps`` steps.
        steps: how many steps that takes.
        warmup: how many steps to stay at ``start`` before.

    Example:
        >>> [round(cosine(1.0, 0.0625, steps=2)(step), 3) for step in range(4)]
        [1.0, 0.531, 0.062, 0.062]
    """
    _check_range("cosine", start, end, steps, warmup)
    return lambda step: end + (start - end) * (1 + math.cos(math.pi * _progress(step, steps, warmup))) / 2


class TemperatureScheduler:
    """Sets the temperature of every layer of a model that has one; used like a learning-rate scheduler.

    Args:
        model: a module; every submodule (itself included) with a fixed ``temperature`` is governed.
            Layers that learn their temperature, or do not read it, are left alone; one that calibrates it is
            an error, for the schedule would undo that.
        schedule: temperature as a function of the step.

    Example:
        >>> from khot.nn import SigmoidTopK
        >>> layer = SigmoidTopK(2)
        >>> scheduler = TemperatureScheduler(layer, exponential(1.0, 0.01, steps=2))
        >>> scheduler.step()
        >>> round(layer.temperature.item(), 3)
        0.1
    """

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        self.layers = [m for m in model.modules() if _has_fixed_temperature(m)]
        if not self.layers:
            raise ValueError(
                "TemperatureScheduler: no submodule has a fixed temperature that it reads (learned ones are "
                "not scheduled, and tokens reduced by mode 'hard' or 'merge' have no use for one) "
                f"in {type(model).__name__}"
            )
        for layer in self.layers:
            if getattr(layer, "calibrate", None) is not None:
                raise ValueError(
                    f"TemperatureScheduler: {type(layer).__name__} has calibrate = {layer.calibrate}, which "
                    "the schedule would undo; give the layer a temperature"
                )
        self.schedule = schedule
        self.last_step = 0
        self._set()

    def step(self) -> None:
        """Go on by one step; call it after ``optimizer.step()``."""
        self.last_step += 1
        self._set()

    @property
    def temperature(self) -> float:
        """The temperature now."""
        return self.schedule(self.last_step)

    def state_dict(self) -> dict[str, Any]:
        """What must be saved to go on later: the step."""
        return {"last_step": self.last_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved step."""
        self.last_step = int(state["last_step"])
        self._set()

    def _set(self) -> None:
        now = self.temperature
        _check("TemperatureScheduler", "temperature", now)
        for layer in self.layers:
            held = layer.temperature
            if isinstance(held, Tensor):  # in place: what is compiled stays compiled
                held.fill_(within_range(now, held.dtype))
            else:
                layer.temperature = now  # pyright: ignore[reportArgumentType]


def _has_fixed_temperature(module: nn.Module) -> bool:
    """A number, or a tensor that is no parameter, as in a layer of khot; and it is read."""
    if getattr(module, "learns_temperature", False) or not getattr(module, "reads_temperature", True):
        return False
    temperature = getattr(module, "temperature", None)
    if isinstance(temperature, Tensor):
        return temperature.dim() == 0 and not isinstance(temperature, nn.Parameter) and temperature.is_leaf
    return isinstance(temperature, float | int) and not isinstance(temperature, bool)


def _progress(step: int, steps: int, warmup: int) -> float:
    return min(max((step - warmup) / steps, 0.0), 1.0)


def _check(name: str, argument: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: {argument} must be positive and finite, got {value}")


def _check_range(name: str, start: float, end: float, steps: int, warmup: int) -> None:
    _check(name, "start", start)
    _check(name, "end", end)
    if steps < 1:
        raise ValueError(f"{name}: steps must be at least 1, got {steps}")
    if warmup < 0:
        raise ValueError(f"{name}: warmup must not be negative, got {warmup}")
