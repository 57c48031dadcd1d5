"""Trajectories whose equations are known: Lorenz's system, and the polynomial systems of the package `dysts`.

`dysts` has no lists of terms, so these are read off its right-hand sides by an exact polynomial fit;
trajectories come from `scipy.integrate.solve_ivp`, which takes a hundredth of the time of `dysts`' own.
"""

# pyright: basic
from __future__ import annotations

import functools
import importlib
import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Known", "has_dysts", "lorenz", "polynomial_system", "polynomial_systems", "powers"]

Powers = tuple[int, ...]
_POINTS, _PERIODS, _SKIPPED = 200, 20, 5
"""Samples in a period, periods, and periods before the first sample."""


@dataclass(frozen=True, eq=False)
class Known:
    """States (n, d) at even times, with noise, and the powers of each equation's terms."""

    t: np.ndarray
    x: np.ndarray
    terms: tuple[frozenset[Powers], ...]


def powers(variables: int, degree: int) -> list[Powers]:
    """The monomials of up to this degree, as powers of the variables."""
    every = itertools.product(range(degree + 1), repeat=variables)
    return sorted((p for p in every if sum(p) <= degree), key=lambda p: (sum(p), [-q for q in p]))


def with_noise(x: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Normal noise whose deviation is this share of each coordinate's root mean square."""
    size = noise * np.sqrt(np.square(x).mean(axis=0))
    return x + size * np.random.default_rng(seed).normal(size=x.shape)


@functools.lru_cache(maxsize=4)
def lorenz(noise: float, seed: int) -> Known:
    """Ten seconds at steps of 0.002 from a start near (−8, 8, 27); noise as a share of the mean size."""
    from scipy.integrate import solve_ivp

    def slope(_: float, x: Any) -> list[float]:
        return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]

    random = np.random.default_rng(seed)
    t = np.arange(0, 10, 0.002)
    start = np.array([-8, 8, 27]) + 2 * random.normal(size=3)
    x = solve_ivp(slope, (0, 10), start, t_eval=t, rtol=1e-10, atol=1e-12, method="LSODA").y.T
    noisy = x + noise * np.sqrt(np.square(x).mean()) * random.normal(size=x.shape)
    terms = (
        frozenset({(1, 0, 0), (0, 1, 0)}),
        frozenset({(1, 0, 0), (0, 1, 0), (1, 0, 1)}),
        frozenset({(0, 0, 1), (1, 1, 0)}),
    )
    return Known(t, noisy, terms)


def has_dysts() -> bool:
    """Whether the package is there."""
    from importlib.util import find_spec

    return find_spec("dysts") is not None


@functools.cache
def polynomial_systems() -> tuple[str, ...]:
    """The autonomous systems of degree at most 4 in at most 4 variables, by name."""
    flows = _flows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _polynomial(flows)


def _polynomial(flows: Any) -> tuple[str, ...]:
    names = sorted(
        name for name in dir(flows) if name[0].isupper() and isinstance(getattr(flows, name), type)
    )
    return tuple(name for name in names if _terms(name) is not None)


@functools.lru_cache(maxsize=4)
def polynomial_system(name: str, noise: float, seed: int) -> Known:
    """Twenty periods of a system, after five that are left out."""
    clean = _trajectory(name)
    return Known(clean.t, with_noise(clean.x, noise, seed), clean.terms)


@functools.lru_cache(maxsize=4)
def _trajectory(name: str) -> Known:
    from scipy.integrate import solve_ivp

    model = _model(name)
    step = model.period / _POINTS
    t = step * np.arange((_SKIPPED + _PERIODS) * _POINTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = solve_ivp(
            lambda time, x: model.rhs(x, time),
            (0, t[-1]),
            np.asarray(model.ic, dtype=float),
            t_eval=t,
            rtol=1e-9,
            atol=1e-12,
            method="LSODA",
        )
    terms = _terms(name)
    if terms is None or found.y.shape[1] != len(t) or not np.isfinite(found.y).all():
        raise ValueError(f"no trajectory of {name}")
    kept = _SKIPPED * _POINTS
    return Known(t[kept:] - t[kept], found.y.T[kept:], terms)


@functools.cache
def _terms(name: str) -> tuple[frozenset[Powers], ...] | None:
    """The terms of each equation, None if it is not such a polynomial."""
    try:
        model = _model(name)
        center = np.asarray(model.ic, dtype=float)
        dimension = len(center)
        if not 1 <= dimension <= 4:
            return None
        random = np.random.default_rng(0)
        points = random.uniform(-2, 2, size=(400, dimension))
        far = random.uniform(-30, 30, size=(100, dimension))
        slopes, there = (np.array([model.rhs(x, 0.0) for x in some], dtype=float) for some in (points, far))
        later = np.array([model.rhs(point, 1.234) for point in points[:20]], dtype=float)
    except Exception:
        return None  # delays, or a right-hand side that does not take such points
    if slopes.shape != points.shape or not np.isfinite(slopes).all() or not np.allclose(later, slopes[:20]):
        return None
    monomials = powers(dimension, 4)
    coefficients = np.linalg.lstsq(_library(points, monomials), slopes, rcond=None)[0]
    for some, wanted in ((points, slopes), (far, there)):  # far away too: not in pieces
        error = np.abs(_library(some, monomials) @ coefficients - wanted).max(axis=0)
        if not (error <= 1e-7 * np.abs(wanted).max(axis=0)).all():
            return None
    present = np.abs(coefficients) > 1e-9 * np.abs(coefficients).max(axis=0)
    return tuple(
        frozenset(p for p, here in zip(monomials, column, strict=True) if here) for column in present.T
    )


def _library(points: np.ndarray, monomials: list[Powers]) -> np.ndarray:
    return np.stack([np.prod(points ** np.array(p), axis=1) for p in monomials], axis=1)


@functools.cache
def _model(name: str) -> Any:
    return getattr(_flows(), name)()


def _flows() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where numba is not installed
        return importlib.import_module("dysts.flows")
