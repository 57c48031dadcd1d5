"""One round of a tournament: of m entries, sorted from the best down, t are left.

The first b = 2t − m pass alone. Of the others place i in b … t − 1 meets place 2t − 1 − i, and the two are
blended by the *chance* of the better one, σ of their difference if nothing else is said. Rows differ in m and
t. Here it is in torch operations; ``khot.kernels.triton.rounds`` has it for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["destinations", "tournament_round", "tournament_round_gradient"]


def _logistic(best: Tensor, other: Tensor) -> Tensor:
    return torch.sigmoid(best - other)


def tournament_round(
    v: Tensor, m: Tensor, t: Tensor, size: int, chance: Callable[[Tensor, Tensor], Tensor] = _logistic
) -> tuple[Tensor, Tensor]:
    """The rows (…, size) after the round, and the share (…, n) of each entry in the place where it went.

    Both are 0 where there is nobody.

    Args:
        v: rows (…, n), of which the first m are sorted.
        m: how many meet, (…, 1).
        t: how many are left, (…, 1), with (m + 1) // 2 ≤ t ≤ m.
        size: at least the largest t.
        chance: of the better one, given it and the other.
    """
    place = torch.arange(v.shape[-1], device=v.device)
    i = place[:size]
    meets = (i >= 2 * t - m) & (i < t)
    best = v[..., :size]
    other = torch.where(meets, v.gather(-1, (2 * t - 1 - i).clamp(0, v.shape[-1] - 1)), best)
    w = torch.where(meets, chance(best, other), 1)
    share = w.gather(-1, destinations(v, t, size))
    share = torch.where(place < t, share, 1 - share)
    return torch.where(i < t, other + w * (best - other), 0), torch.where(place < m, share, 0)


def destinations(v: Tensor, t: Tensor, size: int) -> Tensor:
    """In which place of those that are left each entry of v (…, n) is after the round."""
    place = torch.arange(v.shape[-1], device=v.device)
    return torch.where(place < t, place, 2 * t - 1 - place).clamp(0, size - 1)


def tournament_round_gradient(v: Tensor, m: Tensor, t: Tensor, grad: Tensor, grad_share: Tensor) -> Tensor:
    """The gradient in v from those in both results of `tournament_round`; differentiable itself."""
    n = v.shape[-1]
    place = torch.arange(n, device=v.device)
    meets = (place >= 2 * t - m) & (place < m)
    first = torch.minimum(place, 2 * t - 1 - place).clamp_min(0)
    second = torch.maximum(place, 2 * t - 1 - place).clamp_max(n - 1)
    grad = torch.nn.functional.pad(grad, (0, n - grad.shape[-1]))
    apart, mine = v.gather(-1, first) - v.gather(-1, second), grad.gather(-1, first)
    share = torch.sigmoid(apart)
    by_share = grad_share.gather(-1, first) - grad_share.gather(-1, second)
    by_difference = (mine * apart + by_share) * share * (1 - share)
    met = torch.where(place < t, mine * share + by_difference, mine * (1 - share) - by_difference)
    return torch.where(meets, met, torch.where(place < t, grad, 0))
