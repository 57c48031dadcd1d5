"""The projection on the capped simplex, by brute force."""

import itertools

import numpy as np


def projection(x: np.ndarray, k: float) -> np.ndarray:
    """The nearest point of the capped simplex, by trying every set of zeros and of ones."""
    best, point = np.inf, None
    for kinds in itertools.product((0, 1, None), repeat=len(x)):
        free = np.array([kind is None for kind in kinds])
        y = np.array([kind or 0 for kind in kinds], dtype=float)
        if free.any():
            y[free] = x[free] + (k - y.sum() - x[free].sum()) / free.sum()
        if abs(y.sum() - k) > 1e-12 or y.min() < 0 or y.max() > 1:
            continue
        distance = ((y - x) ** 2).sum()
        if distance < best:
            best, point = distance, y
    assert point is not None
    return point
