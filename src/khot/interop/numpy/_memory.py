"""An array as a tensor over the same memory."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Array", "Budget", "tensor_over"]

Array = NDArray[Any]
Budget = float | Array


def tensor_over(name: str, argument: str, value: Any) -> Any:
    """An array as a tensor over the same memory; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    array: Array = value
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: {argument} must be a plain array, got a masked one: use its data, and mask=~scores.mask"
        )
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: {argument} must be of a real dtype of up to 64 bits, got {array.dtype}")
    if not array.dtype.isnative:
        raise TypeError(
            f"{name}: {argument} must be in the byte order of this machine, got {array.dtype.str}: "
            f"use {argument}.astype({argument}.dtype.newbyteorder('='))"
        )
    if any(stride < 0 for stride in array.strides):
        array = np.array(array, order="C")
    if not array.flags.writeable:
        array = _writable(array)
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]


def _writable(array: Array) -> Array:
    """The same memory without the read-only flag, about which torch would warn; khot does not write to it."""
    if array.size == 0:
        return array.copy()
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.flags.writeable:  # a copy
        return array
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory._array = array  # keeps it alive, as long as a tensor needs it
    return np.frombuffer(memory, dtype=array.dtype).reshape(array.shape)
