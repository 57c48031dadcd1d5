"""Entries and rows whose weights need no relaxation: infinite scores, and rows with at most k allowed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Settled", "settle"]


class Settled(NamedTuple):
    """What is known about rows (…, n) before any relaxation.

    ``settled`` is True where the weight is ``fixed``: all of a row with k or fewer allowed entries (each gets
    1) or with k or more at +inf (they share k), and the infinite entries of any other row, which is then
    ``is_open`` (…, 1): its ``n_finite`` finite entries have ``k_left`` to share (0 in rows that are not
    open).
    """

    settled: Tensor
    fixed: Tensor
    is_open: Tensor
    k_left: Tensor
    n_finite: Tensor


def settle(x: Tensor, k: Tensor) -> Settled:
    """Settle rows ``x`` (−inf where excluded) with budgets ``k`` (…, 1)."""
    surely, excluded = x == math.inf, x == -math.inf
    n_surely = surely.sum(-1, keepdim=True)
    n_allowed = x.shape[-1] - excluded.sum(-1, keepdim=True)
    saturated = n_allowed <= k
    crowded = ~saturated & (n_surely >= k)
    share = torch.where(crowded, k.clamp_min(0) / n_surely.clamp_min(1), 1.0)
    fixed = torch.where(saturated, (~excluded).to(x.dtype), torch.where(surely, share, 0.0))
    is_open = ~(saturated | crowded)
    k_left = torch.where(is_open, k - n_surely, 0.0)
    return Settled(~is_open | surely | excluded, fixed, is_open, k_left, n_allowed - n_surely)
