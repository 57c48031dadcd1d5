"""The base of layers with a temperature: float32 state that is saved, annealed in place, or learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import check_temperature
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations._temperature import within_range
from khot.relaxations.straight_through import straight_through

__all__ = ["Tempered", "shown"]

_COLDEST = 80.0  # exp(±80) is a normal number in float32


class Tempered(nn.Module):
    r"""The base of layers with a temperature.

    A fixed temperature is a float32 buffer ``temperature`` in the ``state_dict``. To anneal it, assign a
    number: it is written in place, so nothing is recompiled. A learned temperature is a float32 parameter
    ``log_temperature``, :math:`\tau = e^\theta`, kept within :math:`e^{\pm 80}`. Both stay float32 whatever
    the model is cast to: in half precision, rounding would swallow small steps of a schedule or an optimiser.

    A layer made with ``temperature=None`` has no temperature.
    """

    log_temperature: nn.Parameter | None
    kappa: nn.Parameter | None

    def __init__(self, temperature: float | None, learn_temperature: bool) -> None:
        super().__init__()
        self.log_temperature = None
        self.kappa = None  # of a learned budget, which is kept in float32 too
        self._settled = True  # whether the temperature is what it should be, or still to be calibrated
        check_switch(type(self).__name__, "learn_temperature", learn_temperature)
        if temperature is None:
            return
        value = _checked(type(self).__name__, temperature)
        if learn_temperature:
            self.log_temperature = nn.Parameter(torch.tensor(_log(value), dtype=torch.float32))
        else:
            # Not by register_buffer: the name belongs to the property, which checks what is assigned.
            self._buffers["temperature"] = torch.tensor(value, dtype=torch.float32)

    @property
    def temperature(self) -> Tensor:
        """The temperature, a tensor without dimensions; with a gradient if it is learned."""
        if self.log_temperature is None:
            fixed = self._buffers.get("temperature")
            if fixed is None:
                raise AttributeError(f"{type(self).__name__} has no temperature")
            return fixed
        theta = self.log_temperature
        return straight_through(theta, theta.clamp(-_COLDEST, _COLDEST)).exp()

    @temperature.setter
    def temperature(self, value: float | Tensor) -> None:
        now = self.temperature
        if now.is_meta and isinstance(value, Tensor):  # load_state_dict(assign=True): no memory to write to
            self._buffers["temperature"] = value.detach().to(torch.float32)
            return
        number = _checked(type(self).__name__, value)
        with torch.no_grad():
            if self.log_temperature is None:
                now.fill_(number)
            else:
                self.log_temperature.fill_(_log(number))
        self._settled = True

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
        """Move our own state, but do not cast it; what a subclass adds is cast as anywhere."""
        state = [self._buffers.get("temperature"), self.log_temperature, self.kappa]
        own = [t for t in state if t is not None]
        own += [t.grad for t in own if t.is_leaf and t.grad is not None]

        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            if result.dtype != tensor.dtype and any(tensor is t for t in own):
                return tensor.to(result.device)
            return result

        if recurse:
            for child in self.children():
                child._apply(fn)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        return super()._apply(moved, recurse=False)  # pyright: ignore[reportUnknownMemberType]

    def _shown_temperature(self) -> str:
        return f"temperature={shown(self.temperature)}" + (" (learned)" if self.learns_temperature else "")


def shown(value: float | Tensor) -> str:
    """A number for ``repr``; a question mark for a tensor without values (on the meta device)."""
    if isinstance(value, Tensor):
        if value.is_meta or type(value) not in (Tensor, nn.Parameter):
            return "?"
        value = value.item()
    return f"{value:.4g}"


def _checked(name: str, value: float | Tensor) -> float:
    """One positive number, and in float32 still one."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"{name}: temperature must be one number, got a tensor of shape {tuple(value.shape)}"
            )
        value = value.item()
    check_temperature(name, value)
    return float(within_range(value, torch.float32))


def _log(temperature: float) -> float:
    return min(max(math.log(temperature), -_COLDEST), _COLDEST)
