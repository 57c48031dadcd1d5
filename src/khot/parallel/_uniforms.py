"""Uniform variables by number: a process makes exactly those it needs.

The i-th variable of a stream is a hash of i: SplitMix64, whose output passes the usual tests (Steele, Lea &
Flood 2014). The seed of a stream is one draw from the generator.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["numbered_uniforms", "stream_seed"]

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15, as the other constants as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


def stream_seed(generator: torch.Generator | None, device: torch.device) -> int:
    """The seed of streams: one draw from the generator."""
    return int(torch.randint(1 << 62, (), device=device, generator=generator))


def numbered_uniforms(seed: int, streams: Tensor, numbers: Tensor) -> Tensor:
    """The uniform variables with the given numbers in each of the streams, float64 in [0, 1).

    Args:
        seed: of all of them.
        streams: int64 (s, 1).
        numbers: int64 (m,).

    Returns:
        Shape (s, m).
    """
    key = _mixed(_mixed(torch.full_like(streams, seed)) ^ (streams * _GOLDEN))
    bits = _mixed(key + (numbers + 1) * _GOLDEN)
    return _shifted(bits, 11).double() * 2.0**-53


def _mixed(z: Tensor) -> Tensor:
    z = (z ^ _shifted(z, 30)) * _FIRST  # integers of torch wrap around
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """A right shift that fills with zeros."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
