"""What layers with a temperature share: it is float32 state, saved, annealed in place, or learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import check_temperature
from khot.relaxations.straight_through import straight_through

__all__ = ["Tempered"]

_COLDEST = 80.0  # exp(±80) is a normal number in float32


class Tempered(nn.Module):
    r"""The base of layers with a temperature.

    A fixed temperature is a float32 buffer ``temperature`` in the ``state_dict``; to anneal it, assign a
    number: it is written in place, so that nothing is compiled anew. A learned one is a float32 parameter
    ``log_temperature``, :math:`\tau = e^\theta`, kept within :math:`e^{\pm 80}`. Both keep their digits when
    the model is cast to a half type.
    """

    log_temperature: nn.Parameter | None

    def __init__(self, temperature: float, learn_temperature: bool) -> None:
        super().__init__()
        check_temperature(type(self).__name__, temperature)
        self.log_temperature = None
        if learn_temperature:
            self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        else:
            # Not by register_buffer: the name belongs to the property, which checks what is assigned.
            self._buffers["temperature"] = torch.tensor(float(temperature), dtype=torch.float32)

    @property
    def temperature(self) -> Tensor:
        """The temperature, a tensor without dimensions; with a gradient if it is learned."""
        if self.log_temperature is None:
            fixed = self._buffers["temperature"]
            assert fixed is not None
            return fixed
        theta = self.log_temperature
        return straight_through(theta, theta.clamp(-_COLDEST, _COLDEST)).exp()

    @temperature.setter
    def temperature(self, value: float | Tensor) -> None:
        check_temperature(type(self).__name__, value)
        with torch.no_grad():
            if self.log_temperature is None:
                self.temperature.fill_(value)
            else:
                self.log_temperature.fill_(math.log(value))

    @property
    def learns_temperature(self) -> bool:
        """Whether the temperature is a parameter."""
        return self.log_temperature is not None

    def _current_temperature(self) -> float | Tensor:
        """What operators are called with: a number where that is cheap to read and need not be traced."""
        tau = self.temperature
        return tau.item() if self.log_temperature is None and is_plain(tau) else tau

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "temperature":
            object.__setattr__(self, name, value)  # the property; a module would replace the buffer
        else:
            super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def to_device(state: Tensor) -> Tensor:
            moved = fn(state)
            return state.to(moved.device) if moved.dtype != state.dtype else moved

        return super()._apply(to_device, recurse)  # pyright: ignore[reportUnknownMemberType]

    def _shown_temperature(self) -> str:
        learned = " (learned)" if self.learns_temperature else ""
        return f"temperature={self.temperature.item():.4g}{learned}"
