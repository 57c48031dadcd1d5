"""Top-k from soft ranks: windows around the ranks 1 … k, whatever the ranks come from.

    M[r, j] = softmax_j [log σ((r + ½ − ρ_j)/w) + log σ((ρ_j − r + ½)/w)],      y = Σ_{r ≤ k} M[r]

The window σ((r + ½ − ρ)/w) − σ((r − ½ − ρ)/w) is that product of two gates times a factor that is the same
for all entries, so rows are finite and sum to one for every width w.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from khot.relaxations.arguments import (
    Number,
    allowed_scores,
    budget,
    check_temperature,
    compute_dtype,
    per_row,
    position,
    within_range,
)
from khot.relaxations.hard import hard_topk
from khot.relaxations.settled import settle
from khot.relaxations.straight_through import straight_through

__all__ = ["RanksOf", "matrix_from_ranks", "weights_from_ranks"]

RanksOf = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Descending soft ranks (…, n) of finite scores (…, n) at temperatures (…, 1), among those allowed (…, n)."""


def weights_from_ranks(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
    hard: bool,
) -> Tensor:
    """The weights of the operator called ``name``."""
    last = position(name, x, dim)
    k_rows = budget(name, x, k, last, integer=True)
    rows = allowed_scores(name, x, mask).to(compute_dtype(x)).movedim(last, -1)
    settled, fixed, _, k_left, _ = settle(rows, k_rows)
    most = x.shape[last] if isinstance(k, Tensor) else int(k)
    matrix = _windows(name, ranks_of, x, rows, ~settled, most, temperature, window, last)
    counts = torch.arange(1, most + 1, device=x.device).unsqueeze(-1) <= k_left.unsqueeze(-1)
    y = torch.where(settled, fixed, torch.where(counts, matrix, 0).sum(-2)).to(x.dtype).movedim(-1, last)
    return straight_through(y, hard_topk(x, k, dim=dim, mask=mask)) if hard else y


def matrix_from_ranks(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    k: int,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    dim: int,
    mask: Tensor | None,
) -> Tensor:
    """Soft one-hot rows (…, k, n); those beyond the number of allowed entries are 0."""
    last = position(name, x, dim)
    budget(name, x, k, last, integer=True)
    rows = allowed_scores(name, x, mask).to(compute_dtype(x)).movedim(last, -1)
    allowed = rows != -math.inf
    matrix = _windows(name, ranks_of, x, rows, allowed, int(k), temperature, window, last)
    exists = torch.arange(1, int(k) + 1, device=x.device).unsqueeze(-1) <= allowed.sum(-1)[..., None, None]
    return torch.where(exists, matrix, 0).to(x.dtype)


def _windows(
    name: str,
    ranks_of: RanksOf,
    x: Tensor,
    rows: Tensor,
    allowed: Tensor,
    k: int,
    temperature: Number | Tensor,
    window: Number | Tensor | None,
    last: int,
) -> Tensor:
    """Soft one-hot rows (…, k, n) over the allowed entries; rows without any are 0."""
    check_temperature(name, temperature)
    if window is not None:
        check_temperature(name, window)
    width = temperature if window is None else window
    tau = per_row(name, "temperature", x, within_range(temperature, rows.dtype), last)
    w = per_row(name, "window", x, within_range(width, rows.dtype), last).unsqueeze(-1)
    ranks = ranks_of(_finite(rows, tau), tau, allowed).unsqueeze(-2)
    r = torch.arange(1, k + 1, dtype=rows.dtype, device=rows.device).unsqueeze(-1)
    logits = logsigmoid((r + 0.5 - ranks) / w) + logsigmoid((ranks - r + 0.5) / w)
    some = allowed.any(-1)[..., None, None]
    logits = torch.where(allowed.unsqueeze(-2) | ~some, logits, -math.inf)
    return torch.where(some, torch.softmax(logits, -1), 0)


def _finite(rows: Tensor, tau: Tensor) -> Tensor:
    """The scores with +inf far above all others, and 0 in place of −inf, which takes no part."""
    top = torch.where(rows.isfinite(), rows, -math.inf).amax(-1, keepdim=True)
    above = torch.where(top == -math.inf, 0, top) + (rows.shape[-1] + 2) * tau
    return torch.where(rows == math.inf, above.detach(), torch.where(rows == -math.inf, 0, rows))
