"""Special functions, with types: ``torch.special`` has none.

Its ``ndtr`` is 0 from −9 on in float64 (−6 in float32), where the normal CDF still has all its digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["erfcx", "ndtr", "ndtri", "xlog1py", "xlogy"]

_special = cast("Any", torch.special)

erfcx: Callable[[Tensor], Tensor] = _special.erfcx
ndtri: Callable[[Tensor], Tensor] = _special.ndtri
xlogy: Callable[[Tensor, Tensor], Tensor] = _special.xlogy
xlog1py: Callable[[Tensor, Tensor], Tensor] = _special.xlog1py


def ndtr(a: Tensor) -> Tensor:
    """The CDF of the normal distribution, exact in a relative sense for a → −∞."""
    return torch.erfc(a * -math.sqrt(0.5)) / 2
