"""Whether the memory or the values of a tensor may be read in the current context."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

__all__ = ["has_values", "inside_a_transform", "is_exporting", "is_plain"]


_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def is_plain(*tensors: Tensor) -> bool:
    """Whether each tensor is ordinary CPU memory, and nothing has to observe torch operations.

    The answer is no under compilation, export and tracing, dispatch modes (fake tensors, counters), functorch
    wrappers and forward-mode duals, and for subclasses, nested tensors and tensors without elements. It is
    also no for a tensor with a gradient, such as a parameter in a closure, inside ``torch.func``, where the
    autograd functions around the kernels cannot be called.
    """
    if (
        torch.compiler.is_compiling()  # first: nothing after it can be traced
        or torch._C._is_tracing()  # pyright: ignore[reportPrivateUsage]
        or torch._C._len_torch_dispatch_stack() > 0  # pyright: ignore[reportPrivateUsage]
    ):
        return False
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or not tensor.is_cpu:
            return False
        try:
            # The cheapest question to which everything without memory of its own has an odd answer: a
            # functorch wrapper or a sparse tensor raises; a symbolic zero, a functionalised or an empty
            # tensor is at 0.
            if tensor.data_ptr() == 0 or tensor.is_nested:
                return False
        except RuntimeError:
            return False
        if tensor.requires_grad and inside_a_transform():
            return False
        # Outside of dual_level() no tensor is a dual, and asking for the level is 20 times cheaper.
        if _dual_level() >= 0 and _is_dual(tensor):
            return False
    return True


def has_values() -> bool:
    """Whether Python may read the values of a tensor: not under compilation, nor inside ``torch.func``."""
    return not (torch.compiler.is_compiling() or inside_a_transform())


def is_exporting() -> bool:
    """Whether `torch.export` traces. torch 2.6 cannot tell: there it is whether anything is compiled."""
    return bool(_is_exporting())


def inside_a_transform() -> bool:
    """Whether this is called inside ``vmap``, ``grad``, ``jvp``, … of ``torch.func``."""
    return torch._C._are_functorch_transforms_active()  # pyright: ignore


def inside_forward_mode() -> bool:
    """Whether forward-mode tangents are being computed, by ``torch.func.jvp`` or ``dual_level``."""
    return _dual_level() >= 0


def _dual_level() -> int:
    return forward_ad._current_level  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]


def _is_dual(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # pyright: ignore[reportUnknownMemberType]
