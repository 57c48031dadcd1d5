"""Conditional Poisson sampling the usual way: a table in log space, one unit after another.

Vectorised over the batch, as published samplers of k-subsets are. What conditional
Poisson sampling is compared with in the suite `conditional_poisson`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["sample", "table"]


def table(theta: Tensor, k: int) -> Tensor:
    """log e_j of the first i weights, shape (n + 1, …, k + 1)."""
    row = theta.new_full((*theta.shape[:-1], k + 1), -math.inf)
    row[..., 0] = 0
    rows = [row]
    for i in range(theta.shape[-1]):
        taken = torch.logaddexp(row[..., 1:], row[..., :-1] + theta[..., i : i + 1])
        row = torch.cat([row[..., :1], taken], -1)
        rows.append(row)
    return torch.stack(rows)


def sample(theta: Tensor, k: int) -> Tensor:
    """One k-hot vector for each row, from the last unit to the first."""
    rows = table(theta, k)
    left = torch.full(theta.shape[:-1], k, dtype=torch.long)
    drawn: list[Tensor] = []
    for i in range(theta.shape[-1], 0, -1):
        before = rows[i - 1].gather(-1, (left - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1)
        total = rows[i].gather(-1, left.unsqueeze(-1)).squeeze(-1)
        chance = torch.where(left > 0, (before + theta[..., i - 1] - total).exp(), 0.0)
        take = torch.rand_like(chance) < chance
        drawn.append(take)
        left = left - take.long()
    return torch.stack(drawn[::-1], -1).to(theta.dtype)
