"""Hard top-k: the indicator of the k largest scores.

    y ∈ {0, 1}ⁿ maximises ⟨x, y⟩ subject to Σy = min(k, allowed).

Ties go to the lower index, so the answer is deterministic and never has more than k ones.
The k-th largest value is found first, then the places left for values equal to it are counted out:
expected O(n) in the compiled kernel, a partial sort in torch operations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.kernels.sorting import argsort
from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    budget,
    check_budget,
    check_mask,
    compute_dtype,
    position,
)

__all__ = ["hard_topk", "ranked_indices"]


def hard_topk(x: Tensor, k: Number | Tensor, *, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""Mark the ``k`` largest entries of ``x`` along ``dim`` with 1, all others with 0.

    Args:
        x: scores, any floating shape. −inf is never selected, +inf always (up to k).
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``x.shape`` without ``dim``
            (rounded to integers).
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``x``; False is never selected.

    Returns:
        Zeros and ones in the shape and dtype of ``x``, with min(k, allowed) ones per row. It
        carries no gradient; a relaxation with ``hard=True`` has this value and a gradient.

    Example:
        >>> hard_topk(torch.tensor([2.0, 3.0, 2.0, 1.0]), 2)
        tensor([1., 1., 0., 0.])
    """
    last = position("hard_topk", x, dim)
    tensors = [t for t in (x, k, mask) if isinstance(t, Tensor)]
    if is_plain(*tensors) and native() is not None:
        return _native(x, k, last, mask)
    k_rows = budget("hard_topk", x, k, last, integer=True)
    rows = allowed_scores("hard_topk", x.detach(), mask).movedim(last, -1)
    chosen = _portable(rows, k_rows.detach(), None if isinstance(k, Tensor) else int(k))
    return chosen.to(x.dtype).movedim(-1, last)


def ranked_indices(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Indices (…, k) of the k largest of each row, best first and ties by index, and which of them exist.

    Excluded entries (−inf) are never among those that exist.
    """
    order = argsort(rows.detach(), descending=True)[1][..., :k]
    allowed = (rows != -math.inf).sum(-1, keepdim=True)
    return order, torch.arange(k, device=rows.device) < allowed


def _native(x: Tensor, k: Number | Tensor, last: int, mask: Tensor | None) -> Tensor:
    """The same by the compiled kernel; a half type has the order of its float32 values."""
    if isinstance(k, Tensor):
        k = budget("hard_topk", x, k, last, integer=True).detach()
    else:
        check_budget("hard_topk", x, k, last, integer=True)
    if mask is not None:
        check_mask("hard_topk", x, mask)
        mask = mask.expand(x.shape).movedim(last, -1)
    x = x if last == x.dim() - 1 else x.movedim(last, -1)
    if x.dtype == compute_dtype(x):
        chosen = cpu.hard_topk(x, k, mask)
    else:
        chosen = cpu.hard_topk(x.detach().to(compute_dtype(x)), k, mask).to(x.dtype)
    return chosen if last == x.dim() - 1 else chosen.movedim(-1, last)


def _portable(x: Tensor, k: Tensor, order: int | None) -> Tensor:
    """The boolean indicator; ``order`` is k if that is one number for all rows."""
    if x.shape[-1] == 0 or order == 0:
        return torch.zeros_like(x, dtype=torch.bool)
    k = k.long()
    best = x.sort(-1, descending=True).values if order is None else x.topk(order).values
    threshold = best.gather(-1, (k - 1).clamp(0, best.shape[-1] - 1))
    above = (x > threshold) | (x.isnan() & ~threshold.isnan())
    level = (x == threshold) | (x.isnan() & threshold.isnan())
    open_places = k - above.sum(-1, keepdim=True)
    chosen = above | (level & (level.cumsum(-1) <= open_places))
    return chosen & (x != -math.inf) & (k > 0)
