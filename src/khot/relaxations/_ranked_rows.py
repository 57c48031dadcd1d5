"""Rows of ranks from logits: what operators with one row per rank hand to the common problem.

An operator gives the logits of each rank; here they become rows, each a softmax over the allowed entries, or
the sum of the first k rows, computed in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot.relaxations._chunks import at_once, chunks
from khot.relaxations._recomputed import recomputed

__all__ = [
    "Allowed",
    "LogitsOf",
    "RowsOf",
    "WeightsOf",
    "in_full",
    "rows_of",
    "softmax_rows",
    "weights_of",
    "where_allowed",
]

Allowed = Tensor | None
"""Which entries (…, n) are allowed; None if all are."""

WeightsOf = Callable[[Tensor, Allowed, Tensor | None, int], Tensor]
"""Sum (…, n) of the first k rows: of scores (…, n), which are allowed, k (…, 1), its maximum ≥ 1. Where all
are allowed, k may be None: the maximum in every row."""

RowsOf = Callable[[Tensor, Any, Tensor], Tensor]
"""Rows (…, m, n): of scores (…, n), which are allowed (…, n) or None, and ranks (…, m). A rank that does not
exist may give anything finite."""

LogitsOf = Callable[[Tensor, Allowed], Callable[[Tensor], Tensor]]
"""Of scores and which are allowed: the function from ranks (…, m) to logits (…, m, n) of their rows."""

Normalised = Callable[[Tensor, Allowed], Tensor]
"""Rows (…, m, n) of logits (…, m, n), over the entries that are allowed."""


def softmax_rows(logits: Tensor, allowed: Allowed) -> Tensor:
    """Softmax over the allowed entries; over all entries if none is allowed, to avoid NaN."""
    if allowed is None:
        return torch.softmax(logits, -1)
    excluded = ~allowed & allowed.any(-1, keepdim=True)
    return torch.softmax(logits.masked_fill(excluded.unsqueeze(-2), -math.inf), -1)


def weights_of(logits_of: LogitsOf, normalised: Normalised = softmax_rows) -> WeightsOf:
    """The sum of normalised rows, computed block by block: the whole matrix is never in memory."""

    def weights(z: Tensor, allowed: Allowed, k: Tensor | None, most: int) -> Tensor:
        logits = logits_of(z, allowed)

        def block(begin: int, end: int) -> Tensor:
            ranks = torch.arange(begin + 1, end + 1, device=z.device)
            rows = normalised(logits(ranks), allowed)
            return (rows if k is None else torch.where((ranks <= k).unsqueeze(-1), rows, 0)).sum(-2)

        if most <= at_once(z.shape[-1]):
            return block(0, most)
        total = torch.zeros_like(z)
        for part in chunks(most, z.shape[-1]):
            total = total + recomputed(block, part.start, part.stop)
        return total

    return weights


def rows_of(logits_of: LogitsOf, normalised: Normalised = softmax_rows) -> RowsOf:
    """Normalised rows."""

    def rows(z: Tensor, allowed: Allowed, ranks: Tensor) -> Tensor:
        return normalised(logits_of(z, allowed)(ranks), allowed)

    return rows


def in_full(z: Tensor, allowed: Allowed, k: Tensor | None, most: int) -> tuple[Tensor, Tensor]:
    """The allowed entries (…, n) and k (…, 1) as tensors, for operators that need both for each row."""
    if allowed is None:
        allowed = torch.ones(z.shape, dtype=torch.bool, device=z.device)
    if k is None:
        k = torch.full((*z.shape[:-1], 1), float(most), dtype=z.dtype, device=z.device)
    return allowed, k


def where_allowed(allowed: Allowed, z: Tensor, otherwise: float) -> Tensor:
    """z (…, n), with ``otherwise`` at the entries that are not allowed."""
    return z if allowed is None else torch.where(allowed, z, otherwise)
