"""Bring weights above 1 back into [0, 1]: the projection on the capped simplex."""

from __future__ import annotations

import math

from torch import Tensor

from khot.relaxations._arguments import Number, allowed_scores
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold.sparse import sparse_topk

__all__ = ["capped_weights"]


def capped_weights(
    y: Tensor, scores: Tensor, k: Number | Tensor, *, dim: int, mask: Tensor | None, hard: bool
) -> Tensor:
    """The point of the capped simplex nearest to the weights ``y`` of ``scores``.

    Entries that are excluded (by the mask or by −inf) stay at 0; the projection leaves them out. With
    ``hard`` the value is the hard selection and the gradient is that of the projected weights.
    """
    allowed = allowed_scores("topk", scores, mask) != -math.inf
    soft = sparse_topk(y, k, dim=dim, mask=allowed)
    return straight_through(soft, hard_topk(scores, k, dim=dim, mask=mask)) if hard else soft
