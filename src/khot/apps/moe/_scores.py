"""From logits to scores and to probabilities."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

__all__ = ["TINY", "probabilities", "scores_of", "wide_linear"]

TINY = 1e-20
"""Added to a sum before it divides: rows whose scores all underflow become 0, not NaN."""


def scores_of(logits: Tensor, score: str) -> Tensor:
    """Softmax, sigmoid or √softplus of (…, experts), in float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if score == "softmax":
        return logits.softmax(-1)
    if score == "sigmoid":
        return logits.sigmoid()
    return torch.nn.functional.softplus(logits).sqrt()


def wide_linear(tokens: Tensor, weight: Tensor, offset: Tensor | None = None) -> Tensor:
    """(T, hidden) times (experts, hidden), plus an offset, in float32 at least, under autocast too."""
    dtype = torch.promote_types(tokens.dtype, torch.float32)
    kind = tokens.device.type
    able = torch.amp.is_autocast_available(kind)
    with torch.autocast(kind, enabled=False) if able else contextlib.nullcontext():
        return torch.nn.functional.linear(
            tokens.to(dtype), weight.to(dtype), None if offset is None else offset.to(dtype)
        )


def probabilities(logits: Tensor, score: str) -> Tensor:
    """The scores divided by their sum, as a balance loss uses them."""
    scores = scores_of(logits, score)
    return scores if score == "softmax" else scores / (scores.sum(-1, keepdim=True) + TINY)
