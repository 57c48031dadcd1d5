"""Which tokens are kept, and how a gradient reaches their scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from khot.relaxations.hard import Order, gathered, hard_topk, ranked_indices

__all__ = ["Kept", "kept_hard", "kept_sample", "left_over"]


class Kept(NamedTuple):
    """The kept ``tokens`` (B, k, C) and their ``indices`` (B, k) in the input; −1 if there were too few."""

    tokens: Tensor
    indices: Tensor


def kept_hard(tokens: Tensor, scores: Tensor, k: int, order: Order) -> Kept:
    """The k tokens with the largest scores; tokens at −inf are never kept. The scores get no gradient."""
    indices, exists = ranked_indices(scores, k, order)
    return Kept(gathered(tokens.contiguous(), indices, exists), torch.where(exists, indices, -1))


def kept_sample(
    tokens: Tensor, scores: Tensor, k: int, order: Order, estimator: Callable[[Tensor, int], Tensor]
) -> Kept:
    """k tokens drawn by an estimator, times its weights; padding gets a score far below all others."""
    allowed = scores > -math.inf
    lowest = torch.where(allowed, scores, math.inf).amin(-1, keepdim=True)
    lowest = torch.where(lowest.isfinite(), lowest, 0).detach()
    weights = estimator(torch.where(allowed, scores, lowest - 1e4), k)
    drawn = hard_topk(weights, k, mask=allowed) > 0
    chosen, indices = kept_hard(tokens, torch.where(drawn, scores, -math.inf), k, order)
    factor = weights.gather(-1, indices.clamp_min(0)).unsqueeze(-1).to(tokens.dtype)
    return Kept(chosen * factor, indices)


def left_over(tokens: Tensor, scores: Tensor, indices: Tensor) -> Tensor:
    r"""EViT's fused token (B, 1, C): the sum of the tokens that are not kept, weighted by their attention.

    .. math:: x_\mathrm{fused} = \sum_{i \notin \mathrm{kept}} a_i x_i, \quad a_i = \exp(s_i)

    Reference: Liang et al. (2022), Not All Patches are What You Need, arXiv:2202.07800.
    """
    marks = torch.zeros(scores.shape, dtype=torch.long, device=scores.device)
    marks = marks.scatter_add(-1, indices.clamp_min(0), (indices >= 0).long())
    dropped = (marks == 0) & (scores > -math.inf)
    weights = torch.where(dropped, scores, -math.inf).exp().to(tokens.dtype)
    return weights.unsqueeze(1) @ torch.where(dropped.unsqueeze(-1), tokens, 0)
