"""Temperature schedules: from soft to hard during training.

A schedule is a function from the step to the temperature. Pass its value as ``temperature=`` to any operator,
or let a :class:`TemperatureScheduler` set the temperature of every layer of a model.

    >>> schedule = cosine(1.0, 0.1, steps=100)
    >>> round(schedule(0), 3), round(schedule(50), 3), round(schedule(1000), 3)
    (1.0, 0.55, 0.1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from khot.relaxations._arguments import check_temperature
from khot.relaxations._plain_arguments import check_integer, check_number
from khot.relaxations._temperature import within_range

__all__ = ["Schedule", "TemperatureScheduler", "constant", "cosine", "exponential"]

#: A function from the step to the temperature; any callable will do: ``lambda step: 0.99**step``.
Schedule = Callable[[int], float]


def constant(temperature: float) -> Schedule:
    """The same temperature at every step.

    Args:
        temperature: > 0.

    Returns:
        A function from the step to the temperature.

    Example:
        >>> constant(0.5)(0), constant(0.5)(1000)
        (0.5, 0.5)
    """
    _check("constant", "temperature", temperature)
    return lambda step: temperature


def exponential(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    """Go from ``start`` to ``end`` by the same factor at every step, then stay at ``end``.

    Args:
        start: the first temperature.
        end: the last temperature, reached after ``warmup + steps`` steps.
        steps: the number of steps from ``start`` to ``end``.
        warmup: the number of steps to stay at ``start`` first.

    Returns:
        A function from the step to the temperature.

    Example:
        >>> [round(exponential(1.0, 0.01, steps=2)(step), 3) for step in range(4)]
        [1.0, 0.1, 0.01, 0.01]
    """
    _check_range("exponential", start, end, steps, warmup)

    def temperature(step: int) -> float:
        share = _progress(step, steps, warmup)
        return start ** (1 - share) * end**share  # end/start may overflow

    return temperature


def cosine(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    """Go from ``start`` to ``end`` along half a cosine, then stay at ``end``.

    Args:
        start: the first temperature.
        end: the last temperature, reached after ``warmup + steps`` steps.
        steps: the number of steps from ``start`` to ``end``.
        warmup: the number of steps to stay at ``start`` first.

    Returns:
        A function from the step to the temperature.

    Example:
        >>> [round(cosine(1.0, 0.0625, steps=2)(step), 3) for step in range(4)]
        [1.0, 0.531, 0.062, 0.062]
    """
    _check_range("cosine", start, end, steps, warmup)

    def temperature(step: int) -> float:
        left = (1 + math.cos(math.pi * _progress(step, steps, warmup))) / 2
        return start * left + end * (1 - left)

    return temperature


class TemperatureScheduler:
    """Set the temperature of all layers of a model; use it like a learning-rate scheduler.

    Args:
        model: a module. The scheduler sets ``temperature`` on the module itself and on every submodule that
            has a fixed one. It leaves alone layers that learn their temperature or do not use it. A layer
            that calibrates its temperature is an error, because the schedule would overwrite the result.
        schedule: the temperature as a function of the step.

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
        """Advance by one step; call it after ``optimizer.step()``."""
        self.last_step += 1
        self._set()

    @property
    def temperature(self) -> float:
        """The current temperature."""
        return self.schedule(self.last_step)

    def state_dict(self) -> dict[str, Any]:
        """The state to save for resuming: the current step."""
        return {"last_step": self.last_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved step."""
        step: Any = state.get("last_step") if isinstance(state, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if step is None:
            raise ValueError(
                f"TemperatureScheduler: state must be that of state_dict(), with 'last_step', got {state!r}"
            )
        check_integer("TemperatureScheduler", "last_step", step, 0)
        self.last_step = int(step)
        self._set()

    def _set(self) -> None:
        now = self.temperature
        check_temperature("TemperatureScheduler", now)
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
    return min(max(step - warmup, 0), steps) / steps


def _check(name: str, argument: str, value: float) -> None:
    check_number(name, argument, value)
    check_temperature(name, value, argument)


def _check_range(name: str, start: float, end: float, steps: int, warmup: int) -> None:
    _check(name, "start", start)
    _check(name, "end", end)
    check_integer(name, "steps", steps)
    check_integer(name, "warmup", warmup, 0)
