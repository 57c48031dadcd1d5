"""Check sample weights, and keep the rows with a positive one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["positive_weights"]


def positive_weights(x: npt.NDArray[Any], sample_weight: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The rows with a positive weight, and their weights, divided by their mean."""
    if sample_weight is None:
        return np.arange(len(x)), np.ones(len(x))
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(len(x), float(weights))
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    if len(weights) != len(x):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(len(x),)}!")
    if not np.isfinite(weights).all():
        raise ValueError("Input sample_weight contains NaN or infinity.")
    if (weights < 0).any():
        raise ValueError("Negative values in data passed to `sample_weight`.")
    rows = np.flatnonzero(weights)
    if not len(rows):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    kept = weights[rows] / weights.max()  # a sum of large ones would overflow
    return rows, kept / kept.mean()
