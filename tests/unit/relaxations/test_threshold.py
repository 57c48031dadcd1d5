"""The fixed number of steps of the solver suffices: more than 1e5 adversarial rows in each dtype.

Logits a = z + offset are compared: the absolute error of a is the relative error of y and of 1 − y.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from khot.relaxations import threshold
from khot.relaxations.gates import LOGISTIC

N, ROWS, CHECKED = 12, 3200, 20


def kinds(generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    def uniform(n: int = N) -> Tensor:
        return torch.rand(ROWS, n, generator=generator, dtype=torch.float64)

    normal = torch.randn(ROWS, N, generator=generator, dtype=torch.float64)
    for scale in (1e-3, 1.0, 30.0, 1e3, 1e5):
        yield f"gaussian × {scale:g}", scale * normal
    yield "cauchy", torch.tan(math.pi * (uniform() - 0.5))
    yield "levels with gaps", (4 * uniform()).floor() * 10 ** (4 * uniform(1) - 1)
    yield "two levels", (uniform() < uniform(1)) * 200 * uniform(1)
    yield "magnitudes mixed", normal * 10 ** (8 * uniform() - 3)
    yield "exponential gaps", -torch.exp(12 * uniform())
    yield "two ties above a crowd", -torch.cat([0 * uniform(2), (300 * uniform(1)).expand(ROWS, N - 2)], -1)


def budgets(generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    def uniform() -> Tensor:
        return torch.rand(ROWS, 1, generator=generator, dtype=torch.float64)

    yield "integer", (1 + (N - 1) * uniform()).floor()
    yield "real", N * uniform()
    distance = 10 ** (-14 + 11 * uniform()) * torch.where(uniform() < 0.5, -1, 1)
    yield "nearly integer", ((N + 1) * uniform()).floor() + distance


def problems(dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for kind, x in kinds(generator):
        for budget, k in budgets(generator):
            k = k.to(dtype)
            yield f"{kind}, {budget}", x.to(dtype), torch.where((k > 1e-7) & (k < N), k, 0.5)


def logits(x: Tensor, k: Tensor) -> Tensor:
    z, offset, _, _ = threshold.solve(LOGISTIC, x, k, torch.ones_like(k), None)
    return (z + offset).double()


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


@pytest.mark.parametrize("early", [True, False], ids=["may stop early", "all steps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_suffice(dtype, early, monkeypatch):
    monkeypatch.setattr(threshold, "is_plain", lambda *tensors: early)
    for name, x, k in problems(dtype):
        a, truth = logits(x, k), torch.from_numpy(logits_by_bisection(x[:CHECKED], k[:CHECKED]))
        assert error(a[:CHECKED], truth, dtype) <= 4, name
        assert error(a, after(20, x, k), dtype) <= 4, name


def test_too_few_steps_are_noticed():
    """The rows above are enough, and hard enough, to tell."""
    rows = [(x, k) for _, x, k in problems(torch.float64)]
    assert sum(len(x) for x, _ in rows) >= 100_000
    assert max(error(after(6, x, k), after(20, x, k), torch.float64) for x, k in rows) > 1e6
