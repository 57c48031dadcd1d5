"""Check the inputs of an estimate: values, a draw and probabilities over the same n units."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_floating, check_tensor

__all__ = ["check_units", "check_values", "drawn_units", "expanded"]


def check_values(name: str, argument: str, value: Tensor) -> None:
    """Check a floating-point tensor over one unit or more."""
    check_floating(name, argument, value)
    if value.dim() == 0 or value.shape[-1] == 0:
        raise ValueError(f"{name}: {argument} must have at least one unit, got shape {tuple(value.shape)}")


def check_units(name: str, **given: Tensor) -> None:
    """Check that all given tensors are floating-point and have the same number of units."""
    for argument, value in given.items():
        check_tensor(name, argument, value)
    n = given["y"].shape[-1:]
    for argument, value in given.items():
        if argument != "indicators":
            check_values(name, argument, value)
        if value.shape[-1:] != n or (argument == "joint" and value.shape[-2:] != n + n):
            shapes = ", ".join(f"{key} {tuple(each.shape)}" for key, each in given.items())
            raise ValueError(f"{name}: all must be over the same n units, got {shapes}")


def drawn_units(name: str, indicators: Tensor, probs: Tensor) -> Tensor:
    """The indicators as booleans, after checking them, and that every drawn unit has π > 0."""
    if indicators.is_complex():
        raise TypeError(f"{name}: indicators must be boolean, or zeros and ones, got {indicators.dtype}")
    drawn = indicators != 0
    binary = indicators.dtype == torch.bool or not is_plain(indicators)  # as far as can be seen here
    if not binary and bool((drawn & (indicators != 1)).any()):
        wrong = indicators[drawn & (indicators != 1)][0].item()
        raise ValueError(f"{name}: indicators must be zeros and ones, got {wrong:g}")
    if bool((drawn & ~(probs > 0)).any()):
        raise ValueError(f"{name}: drawn units must have π > 0, got one with π = 0")
    return drawn


def expanded(y: Tensor, drawn: Tensor, probs: Tensor) -> Tensor:
    """y/π where drawn, 0 elsewhere: units that were not drawn have no effect, not even on gradients."""
    return torch.where(drawn, torch.where(drawn, y, 0.0) / torch.where(drawn, probs, 1.0), 0.0)
