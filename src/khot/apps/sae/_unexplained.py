r"""The fraction of variance unexplained, the squared error over the squared distance from the mean:

.. math:: \sum_i \lVert\hat y_i - y_i\rVert^2 \big/ \sum_i \lVert y_i - \bar y\rVert^2 .

If numbers are large, both sums are divided by the largest: in float32 the square of 1e20 is infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from khot.relaxations.straight_through import straight_through

__all__ = ["fraction_of"]

_STEEPEST = 256.0  # in half precision, whose sums over tokens and latents must stay below 65504


def fraction_of(y: Tensor, out: Tensor, variance: Tensor | None) -> Callable[[Tensor], Tensor]:
    """A function from an error (B, d) to the fraction, a number.

    Args:
        y: targets (B, d).
        out: reconstructions (B, d).
        variance: the second sum, over a larger batch that contains this one; None for that of ``y``.
    """
    unit = torch.ones((), dtype=torch.promote_types(y.dtype, torch.float32), device=y.device)
    if len(y):
        largest = torch.maximum(y.detach().abs().amax(), out.detach().abs().amax())
        unit = 1 / largest.to(unit.dtype).clamp_min(1)
    if variance is None:
        scaled = y.to(unit.dtype) * unit
        spread = (scaled - scaled.mean(0)).square().sum() if len(y) else scaled.sum()
        # One token, or equal ones, have no variance: the numbers stay finite.
        whole = spread.clamp_min(torch.finfo(torch.float32).eps * (scaled.square().sum() + 1e-12))
    else:
        whole = variance * unit * unit

    def fraction(error: Tensor) -> Tensor:
        squares = (error.to(unit.dtype) * unit).square().sum()
        if error.dtype != torch.float16 or not error.numel():
            return squares / whole
        # A derivative 2 e / whole that half precision cannot hold would become infinite, and then NaN.
        steepest = 2 * error.detach().abs().amax().to(unit.dtype) * unit  # times the largest number
        return straight_through(squares / torch.maximum(whole, steepest / _STEEPEST), squares / whole)

    return fraction
