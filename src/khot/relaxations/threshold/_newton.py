"""The threshold in few operations: for exported graphs, and for devices where each operation is a launch.

It finds the root of h(e) = log P − log Q of ``_solver.py`` by Newton's method, from the middle of the same
bracket; steps are clamped to the bracket. For a gate with smooth, log-concave tails h is so nearly linear
that no bisection is needed, and `Gate.newton_steps` steps are enough for any row
(``tests/strategies/adversarial_rows.py``). P and Q are computed side by side, as two rows of one tensor, with
e and −e as their offsets. Infinite scores need no special case: they become numbers far from the anchor, or
equal to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.relaxations.threshold._gates import Gate

__all__ = ["anchored", "movable", "newton_solve"]


def newton_solve(
    gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None
) -> tuple[Tensor, Tensor]:
    """Weights and state of every row of ``x`` (…, n), for the arguments of ``_solver.solve``; n > 0.

    The gate has ``newton_steps``. A NaN score makes its whole row NaN, as softmax does.
    """
    z, half_gap = anchored(x, k, temperature, n_sorted, gate.far)
    a = z + _offset(gate, z, k, half_gap)
    y = gate.weights(a) * (k > 0)  # a product: NaN stays
    return y, torch.where(movable(x, k), gate.state(a), gate.still)


def movable(x: Tensor, k: Tensor) -> Tensor:
    """Which weights can change: those of finite scores, in rows whose budget is less than all entries."""
    excluded = x == -torch.inf
    return (x.abs() != torch.inf) & (k > 0) & (k < x.shape[-1] - excluded.sum(-1, keepdim=True))


def anchored(
    x: Tensor, k: Tensor, temperature: Tensor, n_sorted: int | None, far: float
) -> tuple[Tensor, Tensor]:
    """Distances (…, n) from the ⌈k⌉-th best in units of τ, at most ``far``, and half of that to the next."""
    n, largest = x.shape[-1], torch.finfo(x.dtype).max
    half = x.clamp(-largest, largest) / 2  # differences of halves cannot overflow
    best = half.sort(-1, descending=True).values if n_sorted is None else half.topk(min(n_sorted, n)).values
    last = best.shape[-1] - 1
    anchor = best.gather(-1, (k.ceil().long() - 1).clamp(0, last))
    next_best = best.gather(-1, k.floor().long().clamp(0, last))
    z = ((half - anchor) / (temperature / 2)).clamp(-far, far)
    return torch.where(x == -torch.inf, -far, z), ((anchor - next_best) / temperature).clamp_max(far / 2)


def _offset(gate: Gate, z: Tensor, k: Tensor, half_gap: Tensor) -> Tensor:
    """The offset of the distances z (…, n) from the anchor, in units of τ."""
    assert gate.newton_steps is not None
    n, tiny = z.shape[-1], torch.finfo(z.dtype).tiny
    others, rest = n - k.ceil() + 1, (k.floor() + 1).clamp_max(n)
    low = gate.quantile(((k - (k.ceil() - 1)) / others).clamp_min(tiny), ((n - k) / others).clamp_min(tiny))
    high = gate.quantile((k / rest).clamp_min(tiny), ((rest - k) / rest).clamp_min(tiny))
    above, excess = _upper_side(z, k)

    side = 1 - 2 * torch.arange(2, dtype=z.dtype, device=z.device).unsqueeze(-1)  # of P, of Q
    distance = torch.where(above.unsqueeze(-2) == (side < 0), z.unsqueeze(-2) * side, -2 * gate.far)
    extra = (excess.unsqueeze(-1) * side).clamp_min(tiny)  # not 0: P and Q have logarithms
    half_gap = half_gap.unsqueeze(-1)
    offsets = (((low + high) / 2).unsqueeze(-1) + half_gap) * side
    # The root can lie on the edge, and rounding just beyond it.
    width = ((high - low) / 2 + 1).unsqueeze(-1) + half_gap
    lowest, highest = offsets - width, offsets + width
    for _ in range(gate.newton_steps[z.dtype == torch.float64]):
        tail, slope = gate.tail_and_slope(distance + offsets)
        sums = tail.sum(-1, keepdim=True) + extra
        slopes = (slope.sum(-1, keepdim=True) / sums).sum(-2, keepdim=True).clamp_min(tiny)
        logs = sums.log()
        offsets = offsets - (logs - logs.flip(-2)) / slopes
        offsets = torch.minimum(torch.maximum(offsets, lowest), highest)
    return offsets[..., 0, :]


def _upper_side(z: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Who is above the anchor, and how many more than k they are; ties go to the nearer side."""
    strictly, weakly = z > 0, z >= 0
    n_strictly, n_weakly = strictly.sum(-1, keepdim=True), weakly.sum(-1, keepdim=True)
    ties_below = k - n_strictly <= n_weakly - k
    return strictly | (weakly & ~ties_below), torch.where(ties_below, n_strictly, n_weakly) - k
