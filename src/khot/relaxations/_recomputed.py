"""Memory for work: what a step keeps for its backward pass is computed again instead."""

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

    Under compilation and inside the transforms of ``torch.func`` it cannot, and everything is kept.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or inside_a_transform():
        return function(*arguments)
    return cast("Tensor", checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False))
