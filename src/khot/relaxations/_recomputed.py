"""Checkpointing: save memory by computing a step again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from khot.kernels.availability import inside_a_transform

__all__ = ["recomputed"]


def recomputed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """``function(*arguments)``, called again in the backward pass, where torch can do that.

    Under compilation and inside the transforms of ``torch.func`` it cannot; there all intermediates are kept.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or inside_a_transform():
        return function(*arguments)
    return cast("Tensor", checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False))
