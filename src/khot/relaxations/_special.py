"""Special functions, with types: ``torch.special`` has none.

Its ``ndtr`` is 0 from −9 on in float64 (−6 in float32), where the normal CDF still has all its digits;
torch's ``softplus`` drops log(1 + e⁻ˣ) from x = 20 on, which is 2e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["ndtr", "ndtri", "softplus", "xlog1py", "xlogy"]

_special = cast("Any", torch.special)

ndtri: Callable[[Tensor], Tensor] = _special.ndtri
xlogy: Callable[[Tensor, Tensor], Tensor] = _special.xlogy
xlog1py: Callable[[Tensor, Tensor], Tensor] = _special.xlog1py


def ndtr(a: Tensor) -> Tensor:
    """The CDF of the normal distribution, exact in a relative sense for a → −∞."""
    return torch.erfc(a * -math.sqrt(0.5)) / 2


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ), to the last digit for any x."""
    return -torch.nn.functional.logsigmoid(-x)
