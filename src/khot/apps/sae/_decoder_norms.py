"""Decoder rows of norm 1, and gradients that do not change it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["project_gradient", "unit_rows"]


def unit_rows(rows: Tensor) -> Tensor:
    """The rows at norm 1; a row of zeros stays."""
    norms = rows.norm(dim=-1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1)


def project_gradient(gradient: Tensor, rows: Tensor) -> Tensor:
    """The gradient without its part along each row, which would only change the norm."""
    units = unit_rows(rows)
    return gradient - (gradient * units).sum(-1, keepdim=True) * units
