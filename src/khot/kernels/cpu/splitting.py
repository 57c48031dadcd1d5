"""Calls of the designs that draw one unit after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory

__all__ = ["brewer", "cube", "eliminate"]


def brewer(probs: Tensor, u: Tensor) -> Tensor:
    """Draws by Brewer's method.

    Args:
        probs: inclusion probabilities, float64, shape (..., n), with sum k.
        u: float64 in [0, 1), shape (draws, ..., k) with k ≥ 1.

    Returns:
        Increasing int64 indices, in the shape of u.
    """
    library = compiled_library()
    check("probs", probs)
    probs, u = memory(probs), memory(u)
    n, k = probs.shape[-1], u.shape[-1]
    indices = torch.empty(u.shape, dtype=torch.int64)
    library.brewer(
        probs.data_ptr(),
        u.data_ptr(),
        indices.data_ptr(),
        u.shape[0],
        probs.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices


def eliminate(increasing: Tensor, order: Tensor, u: Tensor, *, kept: bool) -> Tensor:
    """Draws by Tillé's elimination.

    Args:
        increasing: inclusion probabilities in increasing order, float64, shape (..., n), with sum k.
        order: int64, the units in that order.
        u: float64 in [0, 1), shape (draws, ..., n − k): one for each unit that is eliminated.
        kept: return the k units that are left; False returns the others.

    Returns:
        Increasing int64 indices, shape (draws, ..., k) or (draws, ..., n − k).
    """
    library = compiled_library()
    check("increasing", increasing)
    increasing, order, u = memory(increasing), memory(order), memory(u)
    n, steps = increasing.shape[-1], u.shape[-1]
    indices = torch.empty((*u.shape[:-1], n - steps if kept else steps), dtype=torch.int64)
    library.eliminate(
        increasing.data_ptr(),
        order.data_ptr(),
        u.data_ptr(),
        int(kept),
        indices.data_ptr(),
        u.shape[0],
        increasing.numel() // n,
        n,
        n - steps,
        torch.get_num_threads(),
    )
    return indices


def cube(probs: Tensor, columns: Tensor, order: Tensor, u: Tensor) -> Tensor:
    """Draws by the cube method.

    Args:
        probs: inclusion probabilities, float64, shape (rows, n), with sum k.
        columns: the constraints of each unit, the sum first, float64, shape (rows, n, constraints).
        order: int64 permutations, shape (draws, rows, n), units with 0 < π < 1 first.
        u: float64 in [0, 1), shape (draws, rows, n).

    Returns:
        Booleans of shape (draws, rows, n).
    """
    library = compiled_library()
    check("probs", probs)
    probs, columns, order, u = memory(probs), memory(columns), memory(order), memory(u)
    out = torch.empty(u.shape, dtype=torch.bool)
    library.cube(
        probs.data_ptr(),
        columns.data_ptr(),
        order.data_ptr(),
        u.data_ptr(),
        out.data_ptr(),
        *u.shape,
        columns.shape[-1],
        torch.get_num_threads(),
    )
    return out
