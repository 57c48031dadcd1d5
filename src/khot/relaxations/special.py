"""The functions of ``torch.special`` that are used here, which has no type annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["ndtr", "ndtri", "xlog1py", "xlogy"]

_special = cast("Any", torch.special)

ndtr: Callable[[Tensor], Tensor] = _special.ndtr
ndtri: Callable[[Tensor], Tensor] = _special.ndtri
xlogy: Callable[[Tensor, Tensor], Tensor] = _special.xlogy
xlog1py: Callable[[Tensor, Tensor], Tensor] = _special.xlog1py
