"""Count the floating-point operations of a forward pass while it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_flops"]


def count_flops(model: nn.Module, *inputs: Any) -> int:
    """Count the floating-point operations of ``model(*inputs)``: matrix products and convolutions.

    A multiplication and an addition count as two operations. The selection of tokens is included. Cost: one
    forward pass.

    Args:
        model: called once, in its current mode, without gradients.
        inputs: the inputs of the call.

    Returns:
        The number of operations for the whole batch.

    Example:
        >>> count_flops(torch.nn.Linear(8, 4), torch.zeros(16, 8))
        1024
    """
    counter = FlopCounterMode(display=False)
    # Of the fused kernels torch counts those of CUDA only; the plain one has the same products.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model(*inputs)
    return counter.get_total_flops()
