"""N:M sparsity: of each M neighbouring weights along the input dimension, the N largest are kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.relaxations._plain_arguments import is_integer

__all__ = ["TRANSPOSED", "as_pattern", "grouped", "input_dimension", "ungrouped"]

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def as_pattern(name: str, pattern: str | tuple[int, int]) -> tuple[int, int]:
    """(N, M) from ``"2:4"`` or ``(2, 4)``."""
    try:
        kept, of = [int(part) for part in pattern.split(":")] if isinstance(pattern, str) else pattern
        if not (is_integer(kept) and is_integer(of)):
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(f"{name}: pattern must read 'N:M' or (N, M), as '2:4', got {pattern!r}") from None
    if not 0 <= kept <= of or of < 1:
        raise ValueError(f"{name}: pattern must have 0 <= N <= M and M >= 1, got {pattern!r}")
    return kept, of


def input_dimension(module: nn.Module) -> int:
    """The dimension of a layer's weight that is summed over (for an embedding, the embedding dimension)."""
    return 0 if isinstance(module, TRANSPOSED) else 1


def grouped(weight: Tensor, of: int, dim: int) -> Tensor:
    """The weight as rows of ``of`` neighbours along ``dim``, with these neighbours in the last dimension."""
    moved = weight.movedim(dim, -1)
    return moved.reshape(*moved.shape[:-1], -1, of)


def ungrouped(rows: Tensor, dim: int) -> Tensor:
    """The inverse of :func:`grouped`."""
    return rows.flatten(-2).movedim(-1, dim).contiguous(memory_format=torch.contiguous_format)
