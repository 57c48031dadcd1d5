"""The k largest of rows that several processes hold; ties go to the lower index in the whole row.

If k is small, every process sends its own k best in the order of their indices. Each process then takes the k
best of all that were sent, and knows which of them are its own. If k is large, the processes find the k-th
value by counting (``_order_statistic.py``) and give the remaining places to the entries equal to it, from the
first process on. Then each process knows how many of its own are selected, and selects them alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.parallel._group import Group
from khot.parallel._order_statistic import census, order_statistic
from khot.parallel._shards import Shards
from khot.relaxations import hard_topk
from khot.relaxations._arguments import compute_dtype
from khot.relaxations.hard import ranked_indices

__all__ = ["MOST_CANDIDATES", "hard_shards"]

MOST_CANDIDATES = 512
"""Up to this k, processes send candidates."""


def hard_shards(shards: Shards, group: Group, most_candidates: int = MOST_CANDIDATES) -> Tensor:
    """Zeros and ones (rows, here), in the dtype of the scores."""
    x, k = shards.scores.detach(), shards.k.detach().round().long()
    most = int(k.max()) if k.numel() else 0
    if most == 0:
        return torch.zeros_like(x)
    wide = x.to(compute_dtype(x))
    by_candidates = most <= most_candidates
    return (_best_of_candidates(wide, k, most, group) if by_candidates else _by_value(wide, k, group)).to(
        x.dtype
    )


def _best_of_candidates(x: Tensor, k: Tensor, most: int, group: Group) -> Tensor:
    indices, exists = ranked_indices(x, most, "position")
    if x.shape[-1]:
        mine = torch.where(exists, x.gather(-1, indices), -math.inf)
    else:
        mine = x.new_full((x.shape[0], most), -math.inf)
    everyone = group.each(mine).movedim(0, 1).reshape(x.shape[0], group.size * most)
    chosen = hard_topk(everyone, k.squeeze(-1)).view(x.shape[0], group.size, most)[:, group.rank]
    return torch.zeros_like(x).scatter_add_(-1, indices, chosen * exists) if x.shape[-1] else x


def _by_value(x: Tensor, k: Tensor, group: Group) -> Tensor:
    here = census(x)
    everyone = group.total(here.clone())
    n, n_nan = everyone[:, :1], everyone[:, 2:]
    nan_here = here[:, 2:]
    # NaN comes before everything else, as in one process.
    ordered = x if not bool(nan_here.any()) else torch.where(x.isnan(), math.inf, x)
    rank = torch.minimum(k, n)
    found = order_statistic(ordered, rank, here[:, :1], n, group)
    # Among those equal to the value the first are chosen; where it is +inf, NaN and only then +inf.
    first = torch.where(found.value == math.inf, nan_here, 0)
    n_first = torch.where(found.value == math.inf, n_nan, 0)
    second, places = found.equal_here - first, rank - found.above
    before = group.before(torch.cat([first, second], -1))
    chosen = _taken(first, before[:, :1], places) + _taken(second, before[:, 1:], places - n_first)
    mine = torch.where(rank > 0, found.above_here + chosen, 0)
    return hard_topk(x, mine.squeeze(-1)) if x.shape[-1] else x


def _taken(here: Tensor, before: Tensor, places: Tensor) -> Tensor:
    """How many of those in this process get a place, if others come ``before`` them."""
    return torch.minimum((places - before).clamp_min(0), here)
