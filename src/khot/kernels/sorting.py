"""Sorting along the last dimension, by the compiled kernel where it can be."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels import cpu, operations

__all__ = ["TOO_LONG", "argsort", "unsorted"]

TOO_LONG = 2**32
"""A row of this many elements has indices that the kernels have no room for."""


def argsort(x: Tensor, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Values and indices of a stable sort: what `torch.sort(x, stable=True)` gives, without a graph.

    Args:
        x: any shape but (), sorted along the last dimension; NaN counts as the largest.
        descending: from the largest down; equal elements keep their order in both directions.

    Example:
        >>> values, indices = argsort(torch.tensor([3.0, 1.0, 3.0, 2.0]), descending=True)
        >>> indices
        tensor([0, 2, 3, 1])
    """
    if cpu.usable(x) and x.dim() > 0 and x.shape[-1] < TOO_LONG:
        return cpu.argsort(x, descending)
    if operations.taken(x) and x.dim() > 0:
        return operations.argsort(x.detach(), descending)
    values, indices = torch.sort(x.detach(), dim=-1, descending=descending, stable=True)
    return values, indices


def unsorted(values: Tensor, order: Tensor) -> Tensor:
    """Sorted ``values`` (…, n) at the places they came from, ``order`` (…, n) being that of `argsort`.

    With a graph. Compiled, by a second sort: Inductor may read the target of a scatter before it is written
    where it fuses it with a reduction of a mask (torch 2.13; a contract check holds it).
    """
    if torch.compiler.is_compiling():
        return values.gather(-1, order.argsort(-1))
    return torch.zeros_like(values).scatter(-1, order, values)
