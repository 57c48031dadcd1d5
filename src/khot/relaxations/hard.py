"""Hard top-k: the indicator of the k largest scores.

    y ∈ {0, 1}ⁿ maximises ⟨x, y⟩ subject to Σy = min(k, allowed).

Ties go to the lower index, so the result is deterministic and never has more than k ones. The k-th largest
value is found first; then the remaining places go to the first entries equal to it. Cost: expected O(n) in
the compiled kernel, a partial sort in torch operations.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from khot.kernels import cpu, operations
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.kernels.sorting import TOO_LONG, argsort
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    budget,
    check_budget,
    check_mask,
    compute_dtype,
    directed,
    position,
)
from khot.relaxations._plain_arguments import check_choice

__all__ = ["Order", "check_order", "gathered", "hard_topk", "padded", "ranked_indices"]

Order = Literal["score", "position"]
_ORDERS = get_args(Order)


def hard_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
) -> Tensor:
    r"""Mark the ``k`` largest ``scores`` along ``dim`` with 1, all others with 0.

    Ties go to the lower index. Cost: expected O(n) on the CPU, a partial sort elsewhere.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always (up to k).
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim``
            (rounded to integers).
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``scores``; entries with False are never selected.
        largest: False marks the smallest; then +inf is never selected and −inf always.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, with min(k, allowed) ones per row, without a
        gradient. A relaxation with ``hard=True`` has the same value and a gradient.

    Example:
        >>> hard_topk(torch.tensor([2.0, 3.0, 2.0, 1.0]), 2)
        tensor([1., 1., 0., 0.])
    """
    last = position("hard_topk", scores, dim)
    scores = directed("hard_topk", scores, largest)
    tensors = [t for t in (scores, k, mask) if isinstance(t, Tensor)]
    if is_plain(*tensors) and native() is not None:
        return _native(scores, k, last, mask)
    k_rows = budget("hard_topk", scores, k, last, integer=True)
    rows = allowed_scores("hard_topk", scores.detach(), mask).movedim(last, -1)
    on_gpu = operations.taken_on_gpu(rows)  # its kernel reads half types
    wide = rows if on_gpu else rows.to(compute_dtype(rows))
    if on_gpu or operations.taken(wide):
        chosen = operations.hard_topk(wide, operations.as_tensor(k_rows.detach(), torch.float64), None)
        return chosen.to(scores.dtype).movedim(-1, last)
    chosen = _portable(rows, k_rows.detach(), None if isinstance(k, Tensor) else int(k))
    return chosen.to(scores.dtype).movedim(-1, last)


def ranked_indices(rows: Tensor, k: int, order: Order = "score") -> tuple[Tensor, Tensor]:
    """Indices (…, k) of the k largest of each row, best first and ties by index, and which of them exist.

    Excluded entries (−inf) never count as existing; a place that does not exist still has a valid index. With
    ``order="position"`` the indices come in increasing order, existing ones first.
    """
    rows, n = rows.detach(), rows.shape[-1]
    wide, few = rows.to(compute_dtype(rows)), min(k, n)
    by_position = order == "position"
    if few > 0 and n < TOO_LONG and (cpu.usable(wide) or operations.taken(wide)):
        entries = operations.topk_entries if operations.taken(wide) else cpu.topk_entries
        indices = entries(wide, few, None, None, by_position)[0]
        return padded(indices, k), padded(rows.gather(-1, indices) != -math.inf, k)
    indices = padded(argsort(rows, descending=True)[1][..., :few], k)
    exists = torch.arange(k, device=rows.device) < (rows != -math.inf).sum(-1, keepdim=True)
    if by_position:
        indices = indices.gather(-1, torch.where(exists, indices, n).argsort(-1))
    return indices, exists


def padded(places: Tensor, k: int) -> Tensor:
    """Places (…, at most k), padded at the end to k with 0 or False."""
    return torch.nn.functional.pad(places, (0, k - places.shape[-1])) if places.shape[-1] < k else places


def gathered(values: Tensor, indices: Tensor, exists: Tensor) -> Tensor:
    """Vectors (…, k, d) of values (…, n, d), or of a table (n, d), at indices (…, k); 0 if not ``exists``."""
    if values.shape[-2] == 0:  # nothing to take: zeros, with a graph
        return values.sum(-2, keepdim=True).expand(*indices.shape, values.shape[-1])
    if values.dim() == 2 and indices.dim() != 1:
        chosen = values[indices]
    elif is_plain(values, indices) and values.is_contiguous() and values.shape[:-2] == indices.shape[:-1]:
        rows = values.flatten(0, -2)  # whole vectors are copied faster than one element at a time
        first = torch.arange(0, len(rows), values.shape[-2]).view(*indices.shape[:-1], 1)
        chosen = rows.index_select(0, (indices + first).flatten()).view(*indices.shape, -1)
    else:
        chosen = values.gather(-2, indices.unsqueeze(-1).expand(*indices.shape, values.shape[-1]))
    return chosen if known_to_exist(exists) else torch.where(exists.unsqueeze(-1), chosen, 0)


def known_to_exist(exists: Tensor) -> bool:
    """Whether all places exist, if values can be read; then nothing has to be cleared in a copy."""
    return is_plain(exists) and bool(exists.all())


def check_order(name: str, order: str) -> None:
    """Raise unless ``order`` is ``"score"`` or ``"position"``."""
    check_choice(name, "order", order, _ORDERS)


def _native(scores: Tensor, k: Number | Tensor, last: int, mask: Tensor | None) -> Tensor:
    """The same by the compiled kernel; a half type has the order of its float32 values."""
    if isinstance(k, Tensor):
        k = budget("hard_topk", scores, k, last, integer=True).detach()
    else:
        check_budget("hard_topk", scores, k, last, integer=True)
    if mask is not None:
        check_mask("hard_topk", scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    scores = scores if last == scores.dim() - 1 else scores.movedim(last, -1)
    if scores.dtype == compute_dtype(scores):
        chosen = cpu.hard_topk(scores, k, mask)
    else:
        chosen = cpu.hard_topk(scores.detach().to(compute_dtype(scores)), k, mask).to(scores.dtype)
    return chosen if last == scores.dim() - 1 else chosen.movedim(-1, last)


def _portable(x: Tensor, k: Tensor, n_sorted: int | None) -> Tensor:
    """The boolean indicator; ``n_sorted`` is k if that is one number for all rows."""
    if x.shape[-1] == 0 or n_sorted == 0:
        return torch.zeros_like(x, dtype=torch.bool)
    k = k.long()
    best = x.sort(-1, descending=True).values if n_sorted is None else x.topk(n_sorted).values
    threshold = best.gather(-1, (k - 1).clamp(0, best.shape[-1] - 1))
    above = (x > threshold) | (x.isnan() & ~threshold.isnan())
    level = (x == threshold) | (x.isnan() & threshold.isnan())
    open_places = k - above.sum(-1, keepdim=True)
    chosen = above | (level & (level.cumsum(-1) <= open_places))
    return chosen & (x != -math.inf) & (k > 0)
