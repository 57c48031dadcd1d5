"""The arguments that the ranking losses share: scores, a target, and which entries take part."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import check_mask, compute_dtype, position

__all__ = ["RankedRows", "ranked_rows"]


class RankedRows(NamedTuple):
    """A checked problem with the ranked dimension last, each of shape (…, n).

    ``allowed`` is False where the mask or a score of −inf excludes an entry. There ``scores``, which are in
    the dtype of computation, are 0, and so is ``wanted``, which is never NaN and has no gradient.
    """

    scores: Tensor
    wanted: Tensor
    allowed: Tensor


def ranked_rows(
    name: str, scores: Tensor, argument: str, wanted: Tensor, dim: int, mask: Tensor | None
) -> RankedRows:
    """Check the arguments of the loss called ``name``; ``argument`` is the name of its target."""
    last = position(name, scores, dim)
    if not isinstance(wanted, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(wanted).__name__}")
    if wanted.shape != scores.shape or wanted.is_complex():
        raise ValueError(
            f"{name}: {argument} must be real, of the shape of scores, {tuple(scores.shape)}, "
            f"got {wanted.dtype} of shape {tuple(wanted.shape)}"
        )
    allowed = scores != -math.inf
    if mask is not None:
        check_mask(name, scores, mask)
        allowed = allowed & mask
    # What takes no part is 0, whatever it was: NaN must not come back as 0·NaN.
    wanted = torch.where(allowed, wanted.detach(), 0)
    if is_plain(wanted) and bool(wanted.isnan().any()):
        raise ValueError(f"{name}: {argument} must not be NaN where an entry takes part")
    rows = torch.where(allowed, scores.to(compute_dtype(scores)), 0)
    return RankedRows(*(value.movedim(last, -1) for value in (rows, wanted, allowed)))
