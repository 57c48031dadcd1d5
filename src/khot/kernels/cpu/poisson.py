"""Calls of conditional Poisson sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels.cpu.passing import check, compiled_library, memory

__all__ = ["poisson_covariance", "poisson_inclusion", "poisson_weights"]


def poisson_inclusion(theta: Tensor, reference: Tensor, start: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Inclusion probabilities of conditional Poisson sampling.

    Args:
        theta: natural parameters, float32 or float64, shape (..., n).
        reference: float64, one number per row.
        start: float64, one number per row, such that Σσ(t) is about k for t = (θ − reference) + start.
        k: how many units are drawn, 0 < k < n.

    Returns:
        π, like theta, and the probability that exactly k independent gates σ(t) are open, float64 (..., 1).
    """
    library = compiled_library()
    check("theta", theta)
    theta, reference, start = memory(theta), memory(reference), memory(start)
    n = theta.shape[-1]
    pi = torch.empty_like(theta)
    exactly = torch.empty((*theta.shape[:-1], 1), dtype=torch.float64)
    kernel = library.poisson_inclusion_f32 if theta.dtype == torch.float32 else library.poisson_inclusion_f64
    kernel(
        theta.data_ptr(),
        reference.data_ptr(),
        start.data_ptr(),
        pi.data_ptr(),
        exactly.data_ptr(),
        theta.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return pi, exactly


def poisson_covariance(theta: Tensor, reference: Tensor, start: Tensor, k: int, grad: Tensor) -> Tensor:
    """The covariance matrix of conditional Poisson sampling times ``grad``; arguments as above."""
    library = compiled_library()
    check("theta", theta)
    theta, reference, start, grad = memory(theta), memory(reference), memory(start), memory(grad)
    n = theta.shape[-1]
    out = torch.empty_like(theta)
    single = theta.dtype == torch.float32
    kernel = library.poisson_covariance_f32 if single else library.poisson_covariance_f64
    kernel(
        theta.data_ptr(),
        reference.data_ptr(),
        start.data_ptr(),
        grad.data_ptr(),
        out.data_ptr(),
        theta.numel() // n,
        n,
        k,
        torch.get_num_threads(),
    )
    return out


def poisson_weights(probs: Tensor, k: int, tolerance: float, most: int) -> tuple[Tensor, Tensor]:
    """Odds exp θ with given inclusion probabilities, by fixed-point steps.

    Args:
        probs: float64, shape (rows, n), with sum k, 0 < k < n.
        k: how many units are drawn.
        tolerance: the largest error of a row, |π(θ) − π| / (π(1 − π) + 1e-4).
        most: the largest number of steps.

    Returns:
        The odds, 1 where π is 0 or 1, and the error of each row, (rows, 1): above the tolerance if the steps
        did not converge.
    """
    library = compiled_library()
    check("probs", probs)
    probs = memory(probs)
    rows, n = probs.shape
    odds, error = torch.empty_like(probs), probs.new_empty(rows, 1)
    library.poisson_weights(
        probs.data_ptr(),
        tolerance,
        most,
        odds.data_ptr(),
        error.data_ptr(),
        rows,
        n,
        k,
        torch.get_num_threads(),
    )
    return odds, error
