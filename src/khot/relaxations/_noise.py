"""Noise that can be drawn twice: from a generator, and again from the generator's earlier state.

It is drawn in float64 whatever the dtype of the scores. So one seed gives the same noise for all dtypes, and
the largest of a million Gumbel variables does not suffer from the resolution of float32.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["Noise", "gumbel", "normal", "replay", "state_of"]

Noise = Literal["normal", "gumbel"]


def normal(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Standard normal variables."""
    return torch.randn(shape, dtype=torch.float64, device=device, generator=generator)


def gumbel(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Standard Gumbel variables."""
    drawn = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
    return -torch.log(-torch.log(drawn.clamp_min(torch.finfo(drawn.dtype).tiny)))


def state_of(generator: torch.Generator | None, device: torch.device) -> Tensor | None:
    """The state of a generator, or of the device's default one; None for tensors without values (meta)."""
    if generator is not None:
        return generator.get_state()
    if device.type == "meta":
        return None
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def replay(state: Tensor | None, device: torch.device) -> torch.Generator | None:
    """A second generator in that state, so that the first one is not advanced."""
    if state is None:
        return None
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator
