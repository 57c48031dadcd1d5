"""An estimate of the threshold of a long row, from a sample of the scores of each process.

Each process takes every m-th of its scores and finds the threshold at which they get their share of k. If the
shards are alike, so are these thresholds, and the middle between the lowest and the highest is a good start.
This takes one message of two numbers per row. If the thresholds differ too much, there is no estimate.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.parallel._group import Group
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import Gate

__all__ = ["estimated"]

_FEW = 1 << 16  # so many of a process
_EVERY = 16  # but not more than one of these
_APART = 1.0  # in units of τ; beyond it processes do not agree


def estimated(gate: Gate, x: Tensor, k: Tensor, temperature: Tensor, n: int, group: Group) -> Tensor | None:
    """The score (rows, 1) that would have weight ½, the same in all processes; None if they disagree.

    Args:
        gate: F.
        x: this process's part (rows, here).
        k: budgets of the whole rows, (rows, 1).
        temperature: > 0, (rows, 1).
        n: the length of a whole row.
        group: the processes.
    """
    few = x[:, :: max(_EVERY, n // (_FEW * group.size))]
    mine = torch.full((x.shape[0], 1), math.nan, dtype=torch.float64, device=x.device)
    tau = temperature.double()
    if few.numel():
        share = (k * (few.shape[-1] / n)).squeeze(-1)
        with torch.no_grad():
            y = gated_topk("solve", gate, few, share, temperature.squeeze(-1), -1, None, True, False)
        place = (y - 0.5).abs().argmin(-1, keepdim=True)
        p, half = y.gather(-1, place).double(), torch.full_like(mine, 0.5)
        mine = few.gather(-1, place).double() - tau * (gate.quantile(p, 1 - p) - gate.quantile(half, half))
    # No say has who has no scores, or none that a threshold could be between.
    both = torch.where(mine.isfinite(), torch.cat([mine, -mine], -1), -math.inf)
    high, minus_low = group.largest(both).chunk(2, -1)
    agree = high.isfinite() & (high + minus_low <= _APART * tau)
    return ((high - minus_low) / 2).to(x.dtype) if bool(agree.all()) else None
