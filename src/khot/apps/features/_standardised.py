"""Standardise columns to mean 0 and standard deviation 1, with weighted rows, and find constant columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Standardised", "standardised"]

_FARTHEST = 5.0
"""Deviations beyond which a value is cut: one far row must not rule a step."""

_ROUNDING = 1e-13
"""Of a constant column the deviation, in units of its largest value, is at most about this."""


class Standardised(NamedTuple):
    """``x`` (n, d), ``usable`` (d,), False for constant columns, and ``weights`` of the rows, (n,)."""

    x: npt.NDArray[Any]
    usable: npt.NDArray[np.bool_]
    weights: npt.NDArray[Any]


def standardised(
    x: npt.NDArray[Any], weights: npt.NDArray[Any], dtype: Any, farthest: float = _FARTHEST
) -> Standardised:
    """Standardise a copy of ``x`` and clip it at ``farthest`` deviations; ``weights`` have mean 1."""
    x = np.asarray(x, dtype=np.float64)
    largest = np.abs(x).max(0)
    scale = np.where(largest > 0, largest, 1.0)
    x = x / scale  # squares of what is finite stay finite
    mean = weights @ x / len(x)
    x = x - mean
    spread = np.sqrt(weights @ np.square(x) / len(x))
    usable = spread > _ROUNDING
    x = np.maximum(np.minimum(x / np.where(usable, spread, 1.0), farthest), -farthest)
    x[:, ~usable] = 0.0
    return Standardised(x.astype(dtype), usable, weights.astype(dtype))
