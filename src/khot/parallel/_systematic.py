r"""Systematic sampling of rows that several processes hold, by integer sums, which are the same everywhere.

Unit i is drawn if 1 − u plus the sum of π up to i passes a whole number (``khot.designs.systematic``). The π
of units that are not certain are rounded up to multiples of 2^−s. Their sum is then too large by an integer
E, so the i-th partial sum C is lowered by ⌊E·C/ΣC⌋. The last one then has the right value exactly, no sum
falls, and units with π = 0 add nothing. Each process needs the sum of the shards before it: one message.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.parallel._group import Group

__all__ = ["draw_systematic"]


def draw_systematic(inclusion: Tensor, k: Tensor, u: Tensor, group: Group) -> Tensor:
    """Draw booleans (draws, rows, here), k of them True in each whole row.

    Args:
        inclusion: π of this process's part (rows, here), float64, with sum k over the whole row.
        k: int64 (rows, 1).
        u: float64 in [0, 1), (draws, rows, 1), the same in all processes.
        group: the processes.
    """
    certain = inclusion >= 1
    most = int(k.max()) if k.numel() else 0
    shift = 51
    while most >> (62 - shift):
        shift -= 1
    one = 1 << shift
    units = torch.where(certain, 0.0, inclusion * one).ceil().long()
    local = torch.stack([units.sum(-1), certain.sum(-1)], -1)
    everyone = group.each(local)
    total, n_certain = everyone.sum(0).unbind(-1)
    before = everyone[: group.rank, :, 0].sum(0)
    wanted = (k.squeeze(-1) - n_certain) * one
    excess = (total - wanted).clamp_min(0)
    ends = before.unsqueeze(-1) + torch.cat([torch.zeros_like(units[:, :1]), units.cumsum(-1)], -1)
    share = ends.double() / total.clamp_min(1).unsqueeze(-1)
    ends = ends - (excess.unsqueeze(-1).double() * share).floor().long()
    start = (one - 1) - (u * one).long()
    passed = (ends + start) >> shift
    return (passed.diff(dim=-1) > 0) | certain
