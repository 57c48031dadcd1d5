"""Rows that are hard to sort or to select from, by name: each is a function of n, a dtype and a generator."""

import numpy as np

NAN, INF = float("nan"), float("inf")


def _uniform_bits(n, dtype, rng):
    """Every kind of number: subnormal, huge, infinite, NaN of either sign."""
    size = np.dtype(dtype).itemsize
    return rng.integers(0, 256, n * size, dtype=np.uint8).view(dtype)


def _mixed(n, dtype, rng):
    return rng.choice(np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e-40]), n).astype(dtype)


ROWS = {
    "normal": lambda n, dtype, rng: rng.normal(size=n).astype(dtype),
    "constant": lambda n, dtype, rng: np.full(n, 0.25, dtype),
    "two values": lambda n, dtype, rng: rng.integers(0, 2, n).astype(dtype),
    "few values": lambda n, dtype, rng: rng.integers(-3, 4, n).astype(dtype),
    "zeros of both signs": lambda n, dtype, rng: rng.choice(np.array([0.0, -0.0]), n).astype(dtype),
    "rising": lambda n, dtype, rng: np.arange(n).astype(dtype),
    "falling": lambda n, dtype, rng: -np.arange(n).astype(dtype),
    "organ pipe": lambda n, dtype, rng: np.minimum(np.arange(n), n - np.arange(n)).astype(dtype),
    "saw": lambda n, dtype, rng: (np.arange(n) % 16).astype(dtype),
    "close together": lambda n, dtype, rng: (1000 + 1e-3 * rng.normal(size=n)).astype(dtype),
    "few far out": lambda n, dtype, rng: np.where(
        rng.random(n) < 0.03, 1e30, 1 + 1e-6 * rng.random(n)
    ).astype(dtype),
    "many scales": lambda n, dtype, rng: (np.exp(15 * rng.normal(size=n)) * rng.choice([1, -1], n)).astype(
        dtype
    ),
    "single precision": lambda n, dtype, rng: rng.normal(size=n).astype(np.float32).astype(dtype),
    "infinities": lambda n, dtype, rng: np.where(
        rng.random(n) < 0.3, rng.choice([INF, -INF], n), rng.normal(size=n)
    ).astype(dtype),
    "all −inf": lambda n, dtype, rng: np.full(n, -INF, dtype),
    "all +inf": lambda n, dtype, rng: np.full(n, INF, dtype),
    "some NaN": lambda n, dtype, rng: np.where(rng.random(n) < 0.1, NAN, rng.normal(size=n)).astype(dtype),
    "almost all NaN": lambda n, dtype, rng: np.where(rng.random(n) < 0.9, NAN, 1.0).astype(dtype),
    "all NaN": lambda n, dtype, rng: np.full(n, NAN, dtype),
    "mixed": _mixed,
    "uniform bits": _uniform_bits,
}


def problem(kind, shape, dtype, seed=0):
    """A batch of such rows as a numpy array; the rows differ where their kind has any chance in it."""
    rng = np.random.default_rng([seed, *shape])
    n = shape[-1]
    count = int(np.prod(shape[:-1], dtype=int))
    rows = [ROWS[kind](n, dtype, rng) for _ in range(count)]
    return np.array(rows, dtype=dtype).reshape(shape)


SAMPLES = {1000: 32, 5000: 64, 20000: 256, 140_003: 1024}
"""How many values of a row of so many csrc/select.cpp looks at first."""

LIES = {
    "high": lambda size: np.linspace(50, 60, size),
    "low": lambda size: np.linspace(-60, -50, size),
    "wide": lambda size: np.where(np.arange(size) % 2, 1e30, -1e30),
    "tied": lambda size: np.where(np.arange(size) % 2, 0.5, -0.5),
    "same": lambda size: np.zeros(size),
}
"""What a sample may say that is not true of the row."""


def misleading(lie, n, dtype):
    """A row whose sample is such a lie, and the budgets at which a search misled by it could go wrong."""
    size = SAMPLES[n]
    state, step, places = 12345, n // size, []
    for i in range(size):  # the places are those of Jitter in csrc/select.cpp
        state = (state * 1664525 + 1013904223) % 2**32
        places.append(i * step + (step * (state >> 16) >> 16))
    x = problem("normal", (n,), dtype)
    x[places] = LIES[lie](size)
    # Where the answer changes from one of the sampled values to the one beside it in the row.
    sampled = np.sort(x[places])[[0, 1, size // 2 - 1, size // 2, -2, -1]]
    edges = [np.count_nonzero(compare(x, v)) for v in sampled for compare in (np.greater, np.greater_equal)]
    near = {edge + step for edge in edges for step in (-1, 0, 1)}
    budgets = near | {1, size // 2, n // 3, n // 2, n - size, n - 1}
    return x, sorted(k for k in budgets if 1 <= k <= n)
