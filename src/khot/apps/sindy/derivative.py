r"""Derivatives and smoothed states from one local polynomial (Savitzky & Golay 1964).

A polynomial is fitted to each window of ``window_length`` samples. Its value and slope in the middle are the
state that the library sees and its derivative. Noise in the library biases every regression on it, so it is
not enough to smooth only the derivative. ``window_length="auto"`` takes the window with the smallest
estimated error of the states (Mallows 1973),

.. math:: \frac1n \sum_i (x_i - \hat x_i)^2 + 2 \hat\sigma^2 c_0(w),

where :math:`c_0(w)` is the weight of a sample in its own estimate, and :math:`\hat\sigma^2` comes from fourth
differences, which are nearly zero for a smooth trajectory. Cost: O(n w) for each window that is tried.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from khot.relaxations._plain_arguments import check_switches

try:
    from pysindy.differentiation.base import BaseDifferentiation  # pyright: ignore[reportMissingTypeStubs]
    from scipy import signal  # pyright: ignore[reportMissingTypeStubs]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("khot.apps.sindy needs pysindy: pip install 'khot[sindy]'") from error

__all__ = ["SmoothedDerivative"]

Array = NDArray[np.float64]

_GROWTH, _SHARE = 1.2, 8
"""Windows that are tried grow by this factor, up to this part of the samples."""


class SmoothedDerivative(BaseDifferentiation):
    """A pysindy differentiation method that smooths the states of the library too.

    After a call, ``window_length_`` is the window that was used, and ``smoothed_x_`` the states that the
    library sees. Samples must be evenly spaced. Cost: O(n w) for each window length w that is tried.

    Args:
        window_length: an odd number of samples, more than ``polyorder``; or ``"auto"``, by Mallows'
            criterion.
        polyorder: the degree of the local polynomials.
        smooth_library: give the library smoothed states instead of the measured ones.
        drop_edges: leave out of the fit half a window at each end, where the polynomial is one-sided.

    Example:
        >>> t = np.linspace(0, 6, 601)
        >>> derivative = SmoothedDerivative(window_length=11)
        >>> slope = derivative(np.sin(t)[:, None], t)
        >>> bool(np.isnan(slope[:5]).all()), bool(np.abs(slope[5:-5, 0] - np.cos(t)[5:-5]).max() < 1e-5)
        (True, True)

    Reference: Savitzky & Golay (1964), Smoothing and Differentiation of Data by Simplified Least Squares
    Procedures; Mallows (1973), Some Comments on Cp.
    """

    def __init__(
        self,
        window_length: int | Literal["auto"] = "auto",
        polyorder: int = 3,
        *,
        smooth_library: bool = True,
        drop_edges: bool = True,
    ) -> None:
        self.window_length = window_length
        self.polyorder = polyorder
        self.smooth_library = smooth_library
        self.drop_edges = drop_edges

    def _differentiate(self, x: Any, t: Any = 1) -> Array:
        check_switches("SmoothedDerivative", smooth_library=self.smooth_library, drop_edges=self.drop_edges)
        states = np.asarray(x, dtype=np.float64)
        step = _even_step(t, len(states))
        window = self._window(states)
        smooth = _filtered(states, window, self.polyorder)
        slope = _filtered(states, window, self.polyorder, deriv=1, delta=step)
        if self.drop_edges:
            half = window // 2
            slope[:half] = slope[len(slope) - half :] = np.nan
        self.smoothed_x_ = smooth if self.smooth_library else states
        self.window_length_ = window
        return slope

    def _window(self, states: Array) -> int:
        order = self.polyorder
        if not isinstance(order, int) or order < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"SmoothedDerivative: polyorder must be a positive integer, got {order!r}")
        smallest = order + 1 + order % 2  # odd, and above the order
        if self.window_length == "auto":
            if len(states) < 2 * smallest:
                raise ValueError(
                    f"SmoothedDerivative: polyorder={order} needs {2 * smallest} samples, got {len(states)}"
                )
            return _least_error(states, smallest, order)
        window: Any = self.window_length
        odd = isinstance(window, (int, np.integer)) and window % 2 == 1
        if not (odd and order < window <= len(states)):
            raise ValueError(
                f"SmoothedDerivative: window_length must be 'auto' or an odd integer above polyorder={order} "
                f"and up to the {len(states)} samples, got {window!r}"
            )
        return int(window)


def _filtered(states: Array, window: int, order: int, **options: Any) -> Array:
    return cast("Any", signal).savgol_filter(states, window, order, axis=0, **options)


def _least_error(states: Array, smallest: int, order: int) -> int:
    variance = np.square(np.diff(states, 4, axis=0)).mean(axis=0) / 70  # 1² + 4² + 6² + 4² + 1²
    scale = np.where(variance > 0, variance, 1.0)
    best, least, size = smallest, np.inf, float(smallest)
    while (window := int(size) // 2 * 2 + 1) <= max(len(states) // _SHARE, smallest):
        half = window // 2
        residual = (states - _filtered(states, window, order))[half : len(states) - half]
        own = float(cast("Any", signal).savgol_coeffs(window, order)[half])
        error = float(((np.square(residual).mean(axis=0) + 2 * variance * own) / scale).sum())
        if error < least:
            best, least = window, error
        size *= _GROWTH
    return best


def _even_step(t: Any, samples: int) -> float:
    if np.ndim(t) == 0:
        return float(t)
    times = np.asarray(t, dtype=np.float64)
    steps = np.diff(times)
    if len(times) != samples or not (steps > 0).all() or np.ptp(steps) > 1e-3 * steps.mean():
        raise ValueError(
            f"SmoothedDerivative: t must have {samples} increasing times with even steps, got {len(times)} "
            f"with steps from {steps.min(initial=np.inf):.3g} to {steps.max(initial=-np.inf):.3g}"
        )
    return float(steps.mean())
