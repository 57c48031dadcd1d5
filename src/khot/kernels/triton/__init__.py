"""GPU kernels in Triton, behind the same operations as the CPU kernels.

**Nobody has run them on a GPU yet.** Tests run them in Triton's interpreter, on the CPU, and compile them for
the architectures in ``khot.kernels.triton.compiled``. So khot uses them only with ``KHOT_TRITON=1``; without
it, tensors on a GPU take the portable path, in torch operations. If you have a GPU, run ``make test-gpu`` and
``khot bench gpu``.

Scores are float32, float16 or bfloat16, computed in float32; the sampling designs also read float64.
``rows.py`` says how rows are divided among programs.

With ``TRITON_INTERPRET=1`` Triton runs kernels on the CPU, slowly. Then ``KHOT_TRITON=1`` uses them for CPU
tensors too, if ``KHOT_NO_NATIVE=1`` switches the compiled library off. The tests do this.
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
"""The indices of a row of this length do not fit the kernels' integers."""


@functools.cache
def switched_on() -> bool:
    """Whether ``KHOT_TRITON`` is set; read once. An error if it is, but Triton is not installed."""
    wanted = _is_set("KHOT_TRITON")
    if wanted and importlib.util.find_spec("triton") is None:
        raise ModuleNotFoundError('KHOT_TRITON needs triton: pip install "khot[triton]"', name="triton")
    return wanted


@functools.cache
def interpreted() -> bool:
    """Whether to run the kernels on the CPU, in Triton's interpreter; read once."""
    wanted = _is_set("TRITON_INTERPRET") and _is_set("KHOT_TRITON")
    return wanted and importlib.util.find_spec("triton") is not None


def usable(*tensors: Tensor, doubles: bool = False) -> bool:
    """Whether the kernels can read these tensors; ``doubles`` also allows float64."""
    return all(
        (t.dtype in _DTYPES or (doubles and t.dtype == torch.float64)) and t.shape[-1] < _TOO_LONG
        for t in tensors
    )


def serves(gate: str | None, norm: float) -> bool:
    """Whether there is a kernel for this gate."""
    return gate in _GATES and norm == 2
