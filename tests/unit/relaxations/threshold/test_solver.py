"""The fixed number of steps of the solver suffices: more than 1e5 adversarial rows in each dtype.

Logits a = z + e are compared: the absolute error of a is the relative error of y and of 1 − y.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from khot.relaxations.threshold import _solver
from khot.relaxations.threshold._gates import LOGISTIC, Sparse
from khot.testing.truth import sparse
from strategies.adversarial_rows import N, problems

CHECKED = 20


def logits(x: Tensor, k: Tensor) -> Tensor:
    a, _, _ = _solver.solve(LOGISTIC, x, k, torch.ones_like(k), None)
    return a.double()


def logits_by_bisection(x: Tensor, k: Tensor) -> np.ndarray:
    """In extended precision, around the score at the budget's end; Σ is taken of distances to 0 and 1."""
    scores, budget = x.numpy().astype(np.longdouble), k.numpy().astype(np.longdouble)
    last = np.ceil(budget).astype(int) - 1
    z = scores - np.take_along_axis(-np.sort(-scores, -1), last, -1)
    low, high = np.full_like(budget, -80), np.ptp(z, axis=-1, keepdims=True) + 80
    for _ in range(110):
        a = z + (low + high) / 2
        tail = 1 / (1 + np.exp(np.minimum(np.abs(a), 11000)))
        too_many = (a > 0).sum(-1, keepdims=True) - budget + np.where(a > 0, -tail, tail).sum(
            -1, keepdims=True
        ) > 0
        low, high = np.where(too_many, low, (low + high) / 2), np.where(too_many, (low + high) / 2, high)
    return (z + (low + high) / 2).astype(np.float64)


def error(a: Tensor, reference: Tensor, dtype: torch.dtype) -> float:
    """In units of eps (1 + |a| + log n); a weight that underflows has no digits, but must underflow too."""
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    units = (a - reference).abs() / (eps * (1 + reference.abs() + math.log(N)))
    underflows = torch.sigmoid(-reference.abs()) <= 10 * tiny
    as_well = (a * reference > 0) & (torch.sigmoid(-a.abs()) <= 20 * tiny)
    return torch.where(underflows, torch.where(as_well, 0.0, math.inf), units).max().item()


def after(steps: int, x: Tensor, k: Tensor) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(LOGISTIC), "steps", (steps, steps))
        return logits(x, k)


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.full)], ids="every {}th".format)
@pytest.mark.parametrize("early", [True, False], ids=["may stop early", "all steps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_suffice(dtype, early, every, monkeypatch):
    monkeypatch.setattr(_solver, "is_plain", lambda *tensors: early)
    for name, x, k in problems(dtype):
        x, k = x[::every], k[::every]
        a, truth = logits(x, k), torch.from_numpy(logits_by_bisection(x[:CHECKED], k[:CHECKED]))
        assert error(a[:CHECKED], truth, dtype) <= 4, name
        assert error(a, after(20, x, k), dtype) <= 4, name


def test_too_few_steps_are_noticed():
    """The rows above are enough, and hard enough, to tell."""
    rows = [(x, k) for _, x, k in problems(torch.float64)]
    assert sum(len(x) for x, _ in rows) >= 100_000
    assert max(error(after(6, x, k), after(20, x, k), torch.float64) for x, k in rows) > 1e6


@pytest.mark.parametrize("norm", [2.0, 1.5, 1.3])
def test_sparse_weights_of_long_rows_keep_their_digits_when_nearly_all_are_one(norm):
    """The rounding of a sum of 20,000 weights is a thousand times that of the few that are not 1."""
    x = torch.randn(2, 20_000, generator=torch.Generator().manual_seed(0))
    for k in (19_000.0, 19_995.0, 19_999.0):
        a, settled, _ = _solver.solve(Sparse(norm), x, torch.full((2, 1), k), torch.ones(2, 1), None)
        expected = np.stack([sparse(row, k, 1.0, norm) for row in x.double().numpy()])
        assert not settled.any()
        np.testing.assert_allclose(Sparse(norm).weights(a).numpy(), expected, rtol=0, atol=5e-7)
