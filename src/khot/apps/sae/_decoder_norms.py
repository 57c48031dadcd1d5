"""Keep decoder rows at norm 1, and remove the part of gradients that would change the norm."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

__all__ = ["project_gradient_", "row_norms", "unit_rows"]


def row_norms(rows: Tensor) -> Tensor:
    """The Euclidean norms (…) of vectors (…, d)."""
    return cast(Tensor, torch.linalg.vector_norm(rows, dim=-1))  # pyright: ignore[reportUnknownMemberType]


def unit_rows(rows: Tensor) -> Tensor:
    """The rows scaled to norm 1; a row of zeros is unchanged."""
    norms = row_norms(rows).unsqueeze(-1)
    return rows / torch.where(norms > 0, norms, 1)


def project_gradient_(gradient: Tensor, rows: Tensor) -> None:
    """Remove, in place, the part of the gradient along each row, which would only change the norm."""
    along = torch.bmm(gradient.unsqueeze(1), rows.unsqueeze(2)).view(-1, 1)
    squares = row_norms(rows).square().unsqueeze(-1)
    gradient.addcmul_(rows, along / torch.where(squares > 0, squares, 1), value=-1)
