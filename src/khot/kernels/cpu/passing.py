"""How tensors are passed to compiled code: which are accepted, and in what form."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.kernels.loader import Native, native

__all__ = ["check", "compiled_library", "memory", "number_or_address", "per_row", "usable"]

_DTYPES = (torch.float32, torch.float64)


def usable(*tensors: Tensor) -> bool:
    """Whether a compiled kernel may be called with these tensors in the current context.

    It may if the library is loaded and each tensor is plain float32 or float64 memory.
    """
    return is_plain(*tensors) and native() is not None and all(t.dtype in _DTYPES for t in tensors)


def check(name: str, tensor: Tensor) -> None:
    """Raise unless a kernel can read the tensor."""
    if tensor.dtype not in _DTYPES or not tensor.is_cpu:
        raise TypeError(
            f"{name} must be float32 or float64 on the CPU, got {tensor.dtype} on {tensor.device}"
        )
    if not tensor.shape:
        raise ValueError(f"{name} must have at least one dimension, got a scalar")


def per_row(
    name: str, value: float | Tensor, row_shape: tuple[int, ...], dtype: torch.dtype
) -> float | Tensor:
    """A float for all rows, or contiguous memory with one value per row."""
    if not isinstance(value, Tensor):
        return float(value)
    if value.numel() == 1:
        return float(value)
    try:
        value = value.expand(row_shape)
    except RuntimeError as error:
        raise ValueError(
            f"{name} must broadcast to {row_shape}, got one of shape {tuple(value.shape)}"
        ) from error
    return memory(value.to("cpu", dtype))


def number_or_address(value: float | Tensor) -> float:
    """The result of `per_row` as the argument of a kernel: an int is an address, a float is a number."""
    return value.data_ptr() if isinstance(value, Tensor) else value


def compiled_library() -> Native:
    """The compiled library, which must be loaded."""
    library = native()
    if library is None:
        raise RuntimeError("the compiled library is not available: ask khot.kernels.cpu.usable() first")
    return library


def memory(tensor: Tensor) -> Tensor:
    """The tensor in contiguous memory: itself if it is contiguous already."""
    if tensor.is_neg():  # a view that is negated only when read
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
