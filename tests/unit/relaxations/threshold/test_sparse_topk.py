"""sparse_topk: the projection on the capped simplex, sparsemax, other norms, exact zeros and ones."""

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize

import khot
from strategies.capped_simplex import projection

pytestmark = pytest.mark.usefixtures("implementation")

PROBLEMS = [(3, 1), (5, 2), (5, 0.3), (5, 2.5), (6, 4.9), (2, 1.5), (6, 3)]


def row(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n)


def weights(x: np.ndarray, k: float, temperature: float = 1.0, norm: float = 2.0) -> np.ndarray:
    return khot.sparse_topk(torch.tensor(x), k, norm=norm, temperature=temperature).numpy()


def sparsemax(x: np.ndarray) -> np.ndarray:
    """Martins & Astudillo (2016), algorithm 1."""
    z = np.sort(x)[::-1]
    partial = np.cumsum(z)
    size = np.flatnonzero(1 + np.arange(1, len(z) + 1) * z > partial)[-1] + 1
    return np.maximum(x - (partial[size - 1] - 1) / size, 0)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
@pytest.mark.parametrize(("n", "k"), PROBLEMS)
def test_is_the_nearest_point_of_the_capped_simplex(n, k, temperature):
    for seed in range(3):
        x = row(n, seed)
        np.testing.assert_allclose(weights(x, k, temperature), projection(x / temperature, k), atol=1e-13)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_with_a_budget_of_one_it_is_sparsemax(n):
    for seed in range(5):
        x = 2 * row(n, seed)
        np.testing.assert_allclose(weights(x, 1), sparsemax(x), rtol=0, atol=1e-14 * n)


def objective(x: np.ndarray, temperature: float, norm: float, y: np.ndarray) -> float:
    return float(x @ y - temperature / norm * (np.clip(y, 0, None) ** norm).sum())


@pytest.mark.parametrize("norm", [1.2, 1.5, 2.0])
@pytest.mark.parametrize(("n", "k"), PROBLEMS)
def test_maximises_score_minus_norm(n, k, norm):
    x, temperature = 2 * row(n, seed=1), 0.8
    best = minimize(
        lambda y: -objective(x, temperature, norm, y),
        np.full(n, k / n),
        jac=lambda y: -(x - temperature * np.clip(y, 0, None) ** (norm - 1)),
        method="SLSQP",
        bounds=[(0, 1)] * n,
        constraints=LinearConstraint(np.ones(n), k, k),
        options={"ftol": 1e-14, "maxiter": 500},
    )
    y = weights(x, k, temperature, norm)
    assert abs(y.sum() - k) <= 1e-12
    assert objective(x, temperature, norm, y) >= objective(x, temperature, norm, best.x) - 1e-10
    np.testing.assert_allclose(y, best.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", [1.05, 1.2, 1.5, 2])
@pytest.mark.parametrize("k", [0.2, 1, 3.5, 7, 7.8])
def test_meets_the_conditions_of_the_maximum(k, norm):
    """x − τ y^{q−1} is one multiplier where 0 < y < 1, at most it where y = 0, at least it where y = 1."""
    x, temperature = row(8, seed=2), 2.5
    y = weights(x, k, temperature, norm)
    assert abs(y.sum() - k) <= 1e-12
    reduced = x - temperature * y ** (norm - 1)
    inside = (y > 1e-12) & (y < 1)  # the power of a rounding error is no rounding error
    assert inside.any()
    multiplier = reduced[inside].mean()
    np.testing.assert_allclose(reduced[inside], multiplier, rtol=0, atol=1e-11)
    assert (reduced[y == 0] <= multiplier + 1e-11).all()
    assert (reduced[y == 1] >= multiplier - 1e-11).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [1.5, 2.0])
def test_zeros_and_ones_are_exact(norm, dtype):
    x = torch.tensor([5.0, 4.0, 0.25, 0.0, -3.0, -4.0], dtype=dtype)
    y = khot.sparse_topk(x, 3, norm=norm)
    assert y[:2].tolist() == [1, 1]
    assert y[4:].tolist() == [0, 0]
    assert 0 < y[3] < y[2] < 1


@pytest.mark.parametrize("norm", [1.5, 2.0])
def test_hard_weights_have_no_gradient(norm):
    x = torch.tensor([3.0, -1.0, 5.0, -2.0], dtype=torch.float64, requires_grad=True)
    k = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    y = khot.sparse_topk(x, k, norm=norm, temperature=temperature)
    assert y.tolist() == [1, 0, 1, 0]
    for grad in torch.autograd.grad((y * torch.arange(4)).sum(), (x, k, temperature)):
        assert (grad == 0).all()


@pytest.mark.parametrize("norm", [1.3, 2.0])
def test_the_jacobian_is_that_of_finite_differences(norm):
    """Where no weight is about to become 0 or 1."""
    x = torch.tensor([1.9, 0.55, 0.4, 0.3, -1.6], dtype=torch.float64)
    k, temperature, step = (
        torch.tensor(1.7, dtype=torch.float64),
        torch.tensor(0.7, dtype=torch.float64),
        1e-6,
    )
    y = weights(x.numpy(), 1.7, 0.7, norm)
    assert y[0] == 1
    assert y[4] == 0
    assert ((y[1:4] > 0.01) & (y[1:4] < 0.99)).all()
    jacobians = torch.autograd.functional.jacobian(
        lambda x, k, t: khot.sparse_topk(x, k, norm=norm, temperature=t), (x, k, temperature)
    )
    for i, unit in enumerate(np.eye(5)):
        sides = [weights(x.numpy() + s * unit, 1.7, 0.7, norm) for s in (step, -step)]
        np.testing.assert_allclose(jacobians[0][:, i], (sides[0] - sides[1]) / (2 * step), rtol=0, atol=1e-7)
    by_k = (weights(x.numpy(), 1.7 + step, 0.7, norm) - weights(x.numpy(), 1.7 - step, 0.7, norm)) / (
        2 * step
    )
    by_t = (weights(x.numpy(), 1.7, 0.7 + step, norm) - weights(x.numpy(), 1.7, 0.7 - step, norm)) / (
        2 * step
    )
    np.testing.assert_allclose(jacobians[1], by_k, rtol=0, atol=1e-7)
    np.testing.assert_allclose(jacobians[2], by_t, rtol=0, atol=1e-7)


@pytest.mark.parametrize("norm", [0.5, 1, 2.5, float("nan")])
def test_a_norm_out_of_range_is_an_error(norm):
    with pytest.raises(ValueError, match=rf"sparse_topk: norm must be in \(1, 2\], got {norm}"):
        khot.sparse_topk(torch.zeros(3), 1, norm=norm)


@pytest.mark.parametrize(("norm", "kind"), [("2", "str"), (True, "bool"), (None, "NoneType")])
def test_a_norm_that_is_no_number_is_an_error(norm, kind):
    with pytest.raises(TypeError, match=f"sparse_topk: norm must be a number, got {kind}"):
        khot.sparse_topk(torch.zeros(3), 1, norm=norm)
