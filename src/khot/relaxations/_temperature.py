"""Arithmetic with temperatures that stays finite at the ends of a type, and where nothing depends on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["divided", "exponential", "inverse", "within_range", "without_overflow"]


def within_range(temperature: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    """The temperature, moved into the range of ``dtype`` so that it is neither 0 nor infinite.

    Also half of it is no subnormal number, which the processor may be told to take for 0.
    """
    if type(temperature) is float and 1e-30 < temperature < 1e30:
        return temperature
    info = torch.finfo(dtype)
    if not isinstance(temperature, Tensor):
        return min(max(float(temperature), 4 * info.tiny), info.max)
    return temperature if temperature.dtype != torch.float64 else temperature.clamp(4 * info.tiny, info.max)


def exponential(log_temperature: Tensor) -> Tensor:
    """exp of a learned log-temperature, kept away from 0 and infinity.

    The derivative is τ there too, so that the parameter can move back into range.
    """
    info = torch.finfo(log_temperature.dtype)
    nearest = log_temperature.detach().exp().clamp(info.tiny, info.max)
    return nearest * (1 + (log_temperature - log_temperature.detach()))


def without_overflow(temperature: Tensor, rows: Tensor) -> Tensor:
    """The temperatures (…, 1), raised where a score divided by its temperature, or 1/τ, would overflow.

    Such a large quotient means a hard selection, and so does the largest quotient that does not overflow.
    """
    info = torch.finfo(rows.dtype)
    largest = torch.where(rows.isfinite(), rows, 0).detach().abs().amax(-1, keepdim=True)
    return torch.maximum(temperature, (largest * (16 / info.max)).clamp_min(4 * info.tiny))


def inverse(temperature: Tensor, numerator: Tensor | float = 1.0) -> Tensor:
    """``numerator``/τ; the gradient is 0, not NaN, where nothing depends on τ, even if 1/τ² overflows."""
    if not temperature.requires_grad:
        return numerator / temperature
    scale = numerator.log() if isinstance(numerator, Tensor) else math.log(numerator)
    by_logarithm = torch.exp(scale - temperature.log())
    return by_logarithm + (numerator / temperature - by_logarithm).detach()


def divided(scores: Tensor, temperature: Tensor) -> Tensor:
    """x/τ, with the gradient in τ of :func:`inverse`; infinite entries stay infinite and have no gradient."""
    if not temperature.requires_grad or scores.shape[-1] == 0:
        return scores / temperature
    finite = scores.isfinite()
    values = torch.where(finite, scores, 0)
    # The gradient in τ is a sum over the row: in another scale, where its terms cannot be ∞ − ∞.
    far = 2.0**64 if torch.finfo(scores.dtype).max < 2.0**128 else 2.0**512
    largest = values.detach().abs().amax(-1, keepdim=True)
    scale = torch.ones_like(largest).masked_fill(largest > far, far)
    return torch.where(finite, values / scale * inverse(temperature, scale), scores)
