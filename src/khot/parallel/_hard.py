"""The k largest of rows that several processes hold, ties by their place in the whole row.

For a small k every process sends its own k best, in the order of their places; of all that are sent each
takes the k best, and knows which are its own. For a large one the k-th value is found by counting
(``_order_statistic.py``), and the places left for those equal to it are counted out from the first process
on.
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
"""Up to this k candidates are sent."""


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
    allowed = here[:, :1].contiguous()
    everyone = group.total(here.clone())
    n, n_missing = everyone[:, :1], everyone[:, 2:]
    # NaN comes before everything else, as in one process.
    ordered = x if not bool(here[:, 2].any()) else torch.where(x.isnan(), math.inf, x)
    rank = torch.minimum(k, n)
    value, above, *_ = order_statistic(ordered, rank, allowed, n, group)
    chosen = (ordered > value) & (rank > 0)
    places = rank - above
    level = (ordered == value) & (rank > 0)
    if bool((n_missing > 0).any()):  # where the value is +inf, NaN first, then those equal to it
        first = level & x.isnan()
        _take_first(chosen, first, places, group)
        level &= ~first
        places = torch.where(value == math.inf, places - n_missing, places)
    _take_first(chosen, level, places, group)
    return chosen.to(x.dtype)


def _take_first(chosen: Tensor, level: Tensor, places: Tensor, group: Group) -> None:
    """Choose the first entries of a level, so many in each whole row."""
    rows, columns = level.nonzero().unbind(-1)
    count = torch.bincount(rows, minlength=len(level))
    before = group.before(count)
    mine = torch.arange(len(rows), device=rows.device) - (count.cumsum(0) - count)[rows]
    taken = mine < (places.squeeze(-1) - before)[rows]
    chosen[rows[taken], columns[taken]] = True
