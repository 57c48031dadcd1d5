"""Calls of the sampling designs."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory

__all__ = ["pivotal", "shuffled_systematic", "subsets", "systematic", "weighted_subsets"]


def systematic(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Systematic draws: ones at the units hit by the points u, u + 1, … on the cumulative sums.

    Args:
        probs: inclusion probabilities, float32 or float64, shape (..., n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, ...).
        order: int64 permutations, shape (draws, ..., n): the order of the units.

    Returns:
        Zeros and ones of shape (draws, ..., n), in the dtype of probs, exactly k ones in each row.
    """
    library = compiled_library()
    check("probs", probs)
    probs, u = memory(probs), memory(u)
    order = None if order is None else memory(order)
    n = probs.shape[-1]
    out = torch.empty((*u.shape, n), dtype=probs.dtype)
    kernel = library.systematic_f32 if probs.dtype == torch.float32 else library.systematic_f64
    kernel(
        probs.data_ptr(),
        0 if order is None else order.data_ptr(),
        u.data_ptr(),
        out.data_ptr(),
        u.shape[0],
        probs.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out


def pivotal(probs: Tensor, k: int, u: Tensor, order: Tensor | None = None) -> Tensor:
    """Tree pivotal draws.

    Args:
        probs: inclusion probabilities, float32 or float64, shape (..., n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (draws, ..., leaves − 1), for the inner nodes of a heap whose leaves are
            n rounded up to a power of two.
        order: int64 permutations, shape (draws, ..., n): the order of the units at the leaves.

    Returns:
        Zeros and ones of shape (draws, ..., n), in the dtype of probs, exactly k ones in each row.
    """
    library = compiled_library()
    check("probs", probs)
    probs, u = memory(probs), memory(u)
    order = None if order is None else memory(order)
    n = probs.shape[-1]
    out = torch.empty((*u.shape[:-1], n), dtype=probs.dtype)
    kernel = library.pivotal_f32 if probs.dtype == torch.float32 else library.pivotal_f64
    kernel(
        probs.data_ptr(),
        0 if order is None else order.data_ptr(),
        u.data_ptr(),
        u.shape[-1],
        out.data_ptr(),
        u.shape[0],
        probs.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out


def subsets(weights: Tensor, u: Tensor) -> Tensor:
    """Draws of k of n units, with probability proportional to the product of their weights.

    Args:
        weights: float64, shape (..., n), not negative; sums of products of k of them must not overflow.
        u: float64 in [0, 1), shape (draws, ..., k) with 1 ≤ k ≤ n.

    Returns:
        Increasing int64 indices, in the shape of u.
    """
    library = compiled_library()
    check("weights", weights)
    weights, u = memory(weights), memory(u)
    n, k = weights.shape[-1], u.shape[-1]
    indices = torch.empty(u.shape, dtype=torch.int64)
    library.subsets(
        weights.data_ptr(),
        u.data_ptr(),
        indices.data_ptr(),
        u.shape[0],
        weights.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices


def weighted_subsets(weights: Tensor, summands: Tensor, u: Tensor) -> Tensor:
    """Draws of k of n units, each set weighted by the product of its weights and the sum of its summands.

    Args:
        weights: as in `subsets`.
        summands: float64, shape (..., n), not negative.
        u: float64 in [0, 1), shape (draws, ..., 2k) with 1 ≤ k ≤ n.

    Returns:
        Increasing int64 indices, shape (draws, ..., k).
    """
    library = compiled_library()
    check("weights", weights)
    weights, summands, u = memory(weights), memory(summands), memory(u)
    n, k = weights.shape[-1], u.shape[-1] // 2
    indices = torch.empty((*u.shape[:-1], k), dtype=torch.int64)
    library.weighted_subsets(
        weights.data_ptr(),
        summands.data_ptr(),
        u.data_ptr(),
        indices.data_ptr(),
        u.shape[0],
        weights.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return indices


def shuffled_systematic(probs: Tensor, k: int, u: Tensor, random_bytes: Tensor) -> Tensor:
    """Systematic draws in a random order, for long rows.

    Args:
        probs: inclusion probabilities, float32 or float64, shape (rows, n), with sum k up to rounding.
        k: how many units are drawn.
        u: float64 in [0, 1), shape (rows,).
        random_bytes: the source of the random order, contiguous, at least 5n bytes for each row.

    Returns:
        Zeros and ones in the shape and dtype of probs, exactly k ones in each row.
    """
    library = compiled_library()
    check("probs", probs)
    probs, u = memory(probs), memory(u)
    out = torch.empty_like(probs)
    single = probs.dtype == torch.float32
    kernel = library.shuffled_systematic_f32 if single else library.shuffled_systematic_f64
    kernel(
        probs.data_ptr(),
        random_bytes.data_ptr(),
        u.data_ptr(),
        out.data_ptr(),
        1,
        *probs.shape,
        k,
        torch.get_num_threads(),
    )
    return out
