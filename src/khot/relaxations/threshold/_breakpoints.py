"""The threshold of the sparse gate with norm 2, by one sort: for exported graphs and other devices.

Let z be the scores in units of τ, relative to the anchor, the ⌈k⌉-th best. The offset e in
yᵢ = clamp(zᵢ + e, 0, 1) is the anchor's own weight, so it lies in [0, 1]. On that range each entry has one
breakpoint: an entry below the anchor starts to grow at −z, an entry above it reaches 1 at 1 − z. Between two
breakpoints Σy is linear, so the sums at all breakpoints tell which piece holds the root, and a Newton step
from the middle of that piece reaches it. Further Newton steps restore the digits lost in the sums.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.relaxations._cumulative import cumulative
from khot.relaxations.threshold._gates import Gate
from khot.relaxations.threshold._newton import anchored, movable

__all__ = ["breakpoint_solve"]


def breakpoint_solve(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None
) -> tuple[Tensor, Tensor]:
    """Weights and state of every row of ``x`` (…, n), for the arguments of ``_solver.solve``; n > 0."""
    z, _ = anchored(x, k, temperature, n_sorted, gate.far)
    a = z + _middle_of_piece(z, k)
    for _ in range(3):  # on a, not on e: small weights are differences of z and a much larger offset
        inside = ((a > 0) & (a < 1)).to(z.dtype)
        left = k - (a >= 1).sum(-1, keepdim=True)
        count = inside.sum(-1, keepdim=True).clamp_min(1.0)
        a = a - ((a * inside).sum(-1, keepdim=True) - left) / count
    y = gate.weights(a) * (k > 0)  # a product: NaN stays
    return y, torch.where(movable(x, k), y, gate.still)


def _middle_of_piece(z: Tensor, k: Tensor) -> Tensor:
    """The middle of the two breakpoints between which the offset lies, (…, 1)."""
    upper = (z >= 0).to(z.dtype)
    breakpoints, order = (upper - z).clamp(0.0, 1.0).sort(-1)
    turns = 1 - 2 * upper.gather(-1, order)  # what each adds to the slope of the sum
    slopes = upper.sum(-1, keepdim=True) + cumulative(turns) - turns  # before it
    lengths = breakpoints - torch.nn.functional.pad(breakpoints[..., :-1], (1, 0))
    at_zero = (z.clamp_max(1.0) * upper).sum(-1, keepdim=True)
    reached = at_zero + cumulative(slopes * lengths) <= k
    below = torch.where(reached, breakpoints, 0.0).amax(-1, keepdim=True)
    return (below + torch.where(reached, 1.0, breakpoints).amin(-1, keepdim=True)) / 2
