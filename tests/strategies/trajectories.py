"""A trajectory with known equations, for tests of their discovery."""

import functools

import numpy as np
from scipy.integrate import solve_ivp

LORENZ_TERMS = [{"x0", "x1"}, {"x0", "x1", "x0 x2"}, {"x2", "x0 x1"}]


def lorenz(noise, seed=0, step=0.005):
    """Times (n,) and states (n, 3) of Lorenz's system, with noise of that share of their size."""
    t, clean = _clean(step)
    size = noise * np.sqrt(np.square(clean).mean())
    return t, clean + size * np.random.default_rng(seed).normal(size=clean.shape)


@functools.cache
def _clean(step):
    def slope(_, x):
        return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]

    t = np.arange(0, 10, step)
    return t, solve_ivp(slope, (0, 10), [-8, 8, 27], t_eval=t, rtol=1e-9, atol=1e-9, method="LSODA").y.T
