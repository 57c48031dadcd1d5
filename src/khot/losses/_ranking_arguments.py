"""The arguments that the ranking losses share: scores, a target, and which entries take part."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.relaxations._arguments import (
    Number,
    check_device,
    check_mask,
    check_per_row,
    compute_dtype,
    position,
)
from khot.relaxations._plain_arguments import check_real

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
    name: str,
    scores: Tensor,
    argument: str,
    wanted: Tensor,
    dim: int,
    mask: Tensor | None,
    temperature: Number | Tensor,
) -> RankedRows:
    """Check the arguments of the loss called ``name``; ``argument`` is the name of its target.

    Of the temperature the caller has checked the value, and here the shape is checked.
    """
    last = position(name, scores, dim)
    check_per_row(name, "temperature", scores, temperature, last)
    check_real(name, argument, wanted)
    if wanted.shape != scores.shape:
        raise ValueError(
            f"{name}: {argument} must have the shape of scores, {tuple(scores.shape)}, "
            f"got {tuple(wanted.shape)}"
        )
    check_device(name, scores, argument, wanted)
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
