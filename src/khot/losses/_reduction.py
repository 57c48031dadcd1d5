"""Reductions, as in ``torch.nn``: none, mean, sum."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from khot.relaxations._plain_arguments import check_choice

__all__ = ["Reduction", "check_reduction", "reduced"]

Reduction = Literal["none", "mean", "sum"]
_REDUCTIONS = get_args(Reduction)


def check_reduction(name: str, reduction: str) -> None:
    """Raise unless ``reduction`` is ``"none"``, ``"mean"`` or ``"sum"``."""
    check_choice(name, "reduction", reduction, _REDUCTIONS)


def reduced(losses: Tensor, reduction: Reduction, counts: Tensor | None = None) -> Tensor:
    """Reduce the losses; where ``counts`` is False a loss is 0 and does not count in the mean."""
    if counts is not None:
        losses = torch.where(counts, losses, 0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if counts is None else losses.sum() / counts.sum()
