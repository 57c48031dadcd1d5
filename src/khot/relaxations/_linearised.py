"""First derivatives in forward mode where an ``autograd.Function`` cannot say them: compiled.

Dynamo rejects a Function with a ``jvp``. There an operator is y* + J (x − x*), with x* = x without its
derivatives: the value of y*, and the first derivatives of J in every mode. Second ones are not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import inside_forward_mode

__all__ = ["motion", "must_linearise"]


def must_linearise() -> bool:
    """Whether this is compiled, inside ``torch.func.jvp`` or another forward mode."""
    return torch.compiler.is_compiling() and inside_forward_mode()


def motion(x: Tensor) -> Tensor:
    """x − x*: 0, with the derivatives of x; without any where x is infinite."""
    finite = x.isfinite()
    return torch.where(finite, torch.where(finite, x, 0) - torch.where(finite, x, 0).detach(), 0)
