"""Cumulative sums that torch's deterministic mode accepts on every device."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cumulative"]


def cumulative(x: Tensor) -> Tensor:
    """Sums up to each entry along the last dimension.

    On a GPU ``torch.cumsum`` of floats has no deterministic implementation, and raises an error under
    ``torch.use_deterministic_algorithms``. There it is log₂ n additions of shifted rows.
    """
    if x.is_cpu or not x.is_floating_point() or not torch.are_deterministic_algorithms_enabled():
        return x.cumsum(-1)
    shift = 1
    while shift < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-shift], (shift, 0))
        shift *= 2
    return x
