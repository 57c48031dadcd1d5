"""First derivatives in forward mode under ``torch.compile``.

Dynamo rejects an ``autograd.Function`` with a ``jvp``. There an operator is computed as y* + J (x − x*),
where x* is x without its derivatives. This has the value y* and the first derivatives J in every mode. Second
derivatives are not available.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.availability import inside_forward_mode

__all__ = ["motion", "must_linearise"]


def must_linearise() -> bool:
    """Whether this runs compiled and in forward mode, such as inside ``torch.func.jvp``."""
    return torch.compiler.is_compiling() and inside_forward_mode()


def motion(x: Tensor) -> Tensor:
    """x − x*: zero, with the derivatives of x; no derivatives where x is infinite."""
    finite = x.isfinite()
    return torch.where(finite, torch.where(finite, x, 0) - torch.where(finite, x, 0).detach(), 0)
