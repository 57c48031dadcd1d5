"""Kernels for GPUs, in Triton, behind the same operations as those for the CPU.

**Nobody has run them on a GPU yet.** They are tested by Triton's interpreter, on the CPU, and compiled for
the architectures in ``khot.kernels.triton.compiled``; so they are taken only where ``KHOT_TRITON=1`` asks for
them. Otherwise a tensor on a GPU takes the portable path, in torch operations. ``make test-gpu`` and ``khot
bench gpu`` are for whoever has a GPU.

Scores are float32, float16 or bfloat16, computed in float32. A program computes one row, in blocks of at most
``rows.LARGEST_BLOCK`` entries: a row that fits is one block, a longer one is gone through block by block.
"""

from __future__ import annotations

import functools
import importlib.util
import os

import torch
from torch import Tensor

__all__ = ["serves", "switched_on", "usable"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_GATES = ("logistic", "laplace", "sparse")


@functools.cache
def switched_on() -> bool:
    """Whether ``KHOT_TRITON`` is set and Triton is installed; read once."""
    wanted = os.environ.get("KHOT_TRITON", "") not in ("", "0")
    if wanted and importlib.util.find_spec("triton") is None:
        raise ModuleNotFoundError('KHOT_TRITON needs triton: pip install "khot[triton]"', name="triton")
    return wanted


def usable(*tensors: Tensor) -> bool:
    """Whether kernels may be called with these tensors: asked for, on a GPU, of a type that they read."""
    return switched_on() and all(t.is_cuda and t.dtype in _DTYPES for t in tensors)


def serves(gate: str | None, norm: float) -> bool:
    """Whether there is a kernel for this gate."""
    return gate in _GATES and norm == 2
