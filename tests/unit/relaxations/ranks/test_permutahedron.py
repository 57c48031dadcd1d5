"""soft_rank and soft_sort are projections on the permutahedron: by all its corners, and by another solver.

r is the projection of z exactly if it lies in the permutahedron (every sum of the j largest is at most that
of a corner, and all sum to the same) and no corner p improves on it: ⟨z − ∇(r), p − r⟩ ≤ 0, with ∇(r) = r for
the square and log r for the Kullback–Leibler divergence.
"""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from khot import soft_rank, soft_sort
from strategies.quick_run import in_turn

cases = pytest.mark.parametrize(
    ("n", "temperature"), [(n, t) for n in (1, 2, 3, 5, 6, 7) for t in (0.05, 0.4, 1.5, 20.0)]
)
regularizations = pytest.mark.parametrize("regularization", ["l2", "kl"])


def row(n, ties=False):
    x = np.random.default_rng(n).normal(size=n)
    return x.round() if ties else x


def corners(w):
    return np.array(list(itertools.permutations(w)))


def assert_in_the_permutahedron(point, w):
    largest, most = np.cumsum(np.sort(point)[::-1]), np.cumsum(np.sort(w)[::-1])
    scale = 1e-10 * max(1.0, np.abs(most).max())
    assert (largest <= most + scale).all()
    assert abs(largest[-1] - most[-1]) <= scale


def assert_no_corner_is_better(direction, point, w):
    gains = (corners(w) - point) @ direction
    assert gains.max() <= 1e-9 * max(1.0, np.abs(direction).max() * np.abs(w).max())


@cases
@regularizations
@pytest.mark.parametrize(("ties", "descending"), in_turn([False, True], [False, True]))
def test_ranks(n, temperature, regularization, ties, descending):
    x, w = row(n, ties), np.arange(1.0, n + 1)
    z = (-x if descending else x) / temperature
    r = soft_rank(
        torch.from_numpy(x), temperature=temperature, regularization=regularization, descending=descending
    ).numpy()
    assert_in_the_permutahedron(r, w)
    assert_no_corner_is_better(z - (r if regularization == "l2" else np.log(r)), r, w)


@cases
@regularizations
def test_sorted_values(n, temperature, regularization):
    """Descending, where kl projects on the permutahedron of the exponentials."""
    x = row(n)
    s = soft_sort(
        torch.from_numpy(x), temperature=temperature, regularization=regularization, descending=True
    ).numpy()
    targets = np.arange(n, 0.0, -1) / temperature
    point, w = (s, x) if regularization == "l2" else (np.exp(s), np.exp(x))
    assert_in_the_permutahedron(point, w)
    assert_no_corner_is_better(targets - s, point, w)


@regularizations
@pytest.mark.parametrize("n", [3, 5, 6])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_ranks_by_a_general_solver(n, temperature, regularization):
    """SLSQP with one inequality for each set of entries: Σ over S of r ≤ n + (n − 1) + … (|S| terms)."""
    z = row(n) / temperature
    sets = np.array([s for s in itertools.product([0.0, 1.0], repeat=n) if 0 < sum(s) < n])
    most = np.cumsum(np.arange(n, 0.0, -1))[sets.sum(-1).astype(int) - 1]

    def objective(r):
        return 0.5 * np.sum((r - z) ** 2) if regularization == "l2" else np.sum(r * (np.log(r) - 1 - z))

    answer = minimize(
        objective,
        np.full(n, (n + 1) / 2),
        jac=lambda r: (r if regularization == "l2" else np.log(r)) - z,
        bounds=[(0.5, None)] * n,
        constraints=[
            {"type": "ineq", "fun": lambda r: most - sets @ r, "jac": lambda r: -sets},
            {"type": "eq", "fun": lambda r: r.sum() - n * (n + 1) / 2, "jac": lambda r: np.ones(n)},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ranks = soft_rank(torch.from_numpy(z), regularization=regularization).numpy()
    np.testing.assert_allclose(ranks, answer.x, rtol=0, atol=1e-5)
