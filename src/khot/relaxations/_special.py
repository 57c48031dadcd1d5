"""Typed and more accurate versions of functions of torch.

``torch.special.ndtr`` is 0 below −9 in float64 (−6 in float32), where the normal CDF still has all its
digits. torch's ``softplus`` drops log(1 + e⁻ˣ) above x = 20, an error of 2e-9. ``torch.special`` has no
types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["erfcx", "ndtr", "ndtri", "softplus", "xlog1py", "xlogy"]

_special = cast("Any", torch.special)

erfcx: Callable[[Tensor], Tensor] = _special.erfcx
ndtri: Callable[[Tensor], Tensor] = _special.ndtri
xlogy: Callable[[Tensor, Tensor], Tensor] = _special.xlogy
xlog1py: Callable[[Tensor, Tensor], Tensor] = _special.xlog1py


def ndtr(a: Tensor) -> Tensor:
    """The CDF of the normal distribution, with full relative accuracy for a → −∞."""
    return torch.erfc(a * -math.sqrt(0.5)) / 2


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ), accurate to the last digit for every x."""
    return -torch.nn.functional.logsigmoid(-x)
