"""Kernels for GPUs, in Triton, behind the same operations as those for the CPU.

**Nobody has run them on a GPU yet.** They are tested by Triton's interpreter, on the CPU, and compiled for
the architectures in ``khot.kernels.triton.compiled``; so they are taken only where ``KHOT_TRITON=1`` asks for
them. Otherwise a tensor on a GPU takes the portable path, in torch operations. ``make test-gpu`` and ``khot
bench gpu`` are for whoever has a GPU.

Scores are float32, float16 or bfloat16, computed in float32; the sampling designs also read float64. How rows
are divided among programs is said in ``rows.py``.

With ``TRITON_INTERPRET=1`` Triton computes kernels on the CPU, slowly: then ``KHOT_TRITON=1`` takes them also
for tensors there, unless the compiled library comes first (``KHOT_NO_NATIVE=1`` switches it off). The tests
do so.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

from khot.kernels.loader import switched_on as _is_set

__all__ = ["interpreted", "serves", "switched_on", "usable"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_GATES = ("logistic", "laplace", "sparse")
_TOO_LONG = 2**30
"""A row of this many entries has indices that the kernels have no room for."""


@functools.cache
def switched_on() -> bool:
    """Whether ``KHOT_TRITON`` is set and Triton is installed; read once."""
    wanted = _is_set("KHOT_TRITON")
    if wanted and importlib.util.find_spec("triton") is None:
        raise ModuleNotFoundError('KHOT_TRITON needs triton: pip install "khot[triton]"', name="triton")
    return wanted


@functools.cache
def interpreted() -> bool:
    """Whether the kernels are asked for on the CPU, by Triton's interpreter; read once."""
    wanted = _is_set("TRITON_INTERPRET") and _is_set("KHOT_TRITON")
    return wanted and importlib.util.find_spec("triton") is not None


def usable(*tensors: Tensor, doubles: bool = False) -> bool:
    """Whether kernels can read these tensors, ``doubles`` perhaps among them."""
    return all(
        (t.dtype in _DTYPES or (doubles and t.dtype == torch.float64)) and t.shape[-1] < _TOO_LONG
        for t in tensors
    )


def serves(gate: str | None, norm: float) -> bool:
    """Whether there is a kernel for this gate."""
    return gate in _GATES and norm == 2
