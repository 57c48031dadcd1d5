"""Scores, what is wanted of them, and who takes part: the arguments that the ranking losses share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.relaxations._arguments import check_mask, compute_dtype

__all__ = ["RankedRows", "ranked_rows"]


class RankedRows(NamedTuple):
    """A checked problem with the ranked dimension last, each of shape (…, n).

    ``scores`` are in the dtype of computation, and 0 where the mask or a score of −inf excludes: there
    ``allowed`` is False. ``wanted`` has no gradient.
    """

    scores: Tensor
    wanted: Tensor
    allowed: Tensor


def ranked_rows(
    name: str, input: Tensor, argument: str, wanted: Tensor, dim: int, mask: Tensor | None
) -> RankedRows:
    """Check the arguments of the loss called ``name``, whose second one is called ``argument``."""
    if not input.is_floating_point() or input.dim() == 0:
        raise TypeError(
            f"{name}: input must be floating-point scores of one dimension or more, "
            f"got {input.dtype} of shape {tuple(input.shape)}"
        )
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"{name}: dim must be in [{-input.dim()}, {input.dim() - 1}], got {dim}")
    if wanted.shape != input.shape or wanted.is_complex():
        raise ValueError(
            f"{name}: {argument} must be real, of the shape of input, {tuple(input.shape)}, "
            f"got {wanted.dtype} of shape {tuple(wanted.shape)}"
        )
    allowed = input != -math.inf
    if mask is not None:
        check_mask(name, input, mask)
        allowed = allowed & mask
    # What takes no part is 0, whatever it was: NaN must not come back as 0·NaN.
    scores = torch.where(allowed, input.to(compute_dtype(input)), 0)
    return RankedRows(*(value.movedim(dim, -1) for value in (scores, wanted.detach(), allowed)))
