"""Values of sigmoid_topk: problems with known answers, the optimisation problem, and the threshold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.optimize import LinearConstraint, brentq, minimize
from scipy.special import entr, expit

import khot
from khot.testing import truth
from strategies.known_sigmoid import EPS, Problem, hard, known

pytestmark = pytest.mark.usefixtures("implementation")


def solved(problem: Problem) -> np.ndarray:
    y = khot.sigmoid_topk(problem.x, problem.k, temperature=problem.temperature, mask=problem.mask)
    assert y.dtype == problem.x.dtype
    return y.double().numpy()


def assert_known(problem: Problem) -> None:
    error = np.abs(solved(problem) - problem.weights)
    assert (error <= problem.tolerance).all(), (error / np.maximum(problem.tolerance, 1e-300)).max()


@given(known(torch.float64))
def test_known_answers_in_float64(problem: Problem):
    assert_known(problem)


@given(known(torch.float32))
def test_known_answers_in_float32(problem: Problem):
    assert_known(problem)


@given(hard(torch.float64))
def test_hard_answers_in_float64(problem: Problem):
    assert_known(problem)


@given(hard(torch.float32))
def test_hard_answers_in_float32(problem: Problem):
    assert_known(problem)


@given(known(torch.float64))
def test_gradient_of_known_answers(problem: Problem):
    """diag(w) − wwᵀ/W of the known weights; where all are near 0 or 1, W is small and k ill-conditioned."""
    y = problem.weights
    w = y * (1 - y)
    if w.sum() < 1e-3:
        return
    x = problem.x.clone().requires_grad_()
    result = khot.sigmoid_topk(x, problem.k, temperature=problem.temperature, mask=problem.mask)
    direction = np.cos(np.arange(len(y)))
    (grad,) = torch.autograd.grad(result, x, torch.tensor(direction))
    expected = w * (direction - (w * direction).sum() / w.sum()) / problem.temperature
    # an error of y, relative to W, is passed on to w/W twice
    allowed = 1e3 * EPS[torch.float64] * max(problem.k, 1) / w.sum() / problem.temperature
    assert np.abs(grad.numpy() - expected).max() <= allowed
    assert (grad.numpy()[~problem.mask.numpy()] == 0).all()


@given(known(torch.float64))
def test_truth_knows_the_answers_too(problem: Problem):
    """The contract's truth, which solves finite rows only, against the same problems."""
    finite = problem.mask & problem.x.isfinite()
    k = problem.k - (problem.mask & (problem.x == np.inf)).sum().item()
    if not 0 < k < finite.sum().item():  # the budget was rounded onto the edge
        return
    y = truth.sigmoid(problem.x[finite].numpy(), k, problem.temperature)
    error = np.abs(y - problem.weights[finite.numpy()])
    assert (error <= problem.tolerance[finite.numpy()]).all()


SMALL = [(3, 1), (5, 2), (5, 0.3), (5, 2.5), (6, 4.9), (2, 1.5)]


def row(n: int, seed: int = 0) -> np.ndarray:
    return 2 * np.random.default_rng(seed).standard_normal(n)


def objective(x: np.ndarray, temperature: float, y: np.ndarray) -> np.ndarray:
    """⟨x, y⟩ + τ ΣH(y) of each row y."""
    return y @ x + temperature * (entr(y) + entr(1 - y)).sum(-1)


def weights(x: np.ndarray, k: float, temperature: float = 1.0) -> np.ndarray:
    return khot.sigmoid_topk(torch.tensor(x), k, temperature=temperature).numpy()


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")  # SLSQP of scipy 1.15
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize(("n", "k"), SMALL)
def test_maximises_score_plus_entropy(n, k, temperature):
    x = row(n)
    best = minimize(
        lambda y: -objective(x, temperature, y),
        np.full(n, k / n),
        jac=lambda y: -(x - temperature * np.log(y / (1 - y))),
        method="SLSQP",
        bounds=[(1e-9, 1 - 1e-9)] * n,
        constraints=LinearConstraint(np.ones(n), k, k),
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert best.success, best.message
    np.testing.assert_allclose(weights(x, k, temperature), best.x, atol=1e-6)


@pytest.mark.parametrize(("n", "k"), SMALL)
def test_no_feasible_point_is_better(n, k):
    """Towards random points of the capped simplex, and along random feasible directions."""
    rng = np.random.default_rng(1)
    x, temperature = row(n, seed=1), 0.7
    y = weights(x, k, temperature)
    at_y = objective(x, temperature, y)
    assert abs(y.sum() - k) <= 1e-12
    others = weights(5 * rng.normal(size=(200, n)), k)
    swaps = rng.normal(size=(200, n))
    swaps -= swaps.mean(-1, keepdims=True)
    reach = (np.where(swaps > 0, 1 - y, y) / np.abs(swaps)).min(-1, keepdims=True)
    for step in (1e-3, 0.1, 0.9):
        for points in (y + step * (others - y), y + step * reach * swaps):
            assert np.all(objective(x, temperature, points) <= at_y + 1e-13)
            if step == 0.9:  # strictly concave: a real step is really worse
                assert np.all(objective(x, temperature, points) < at_y)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 11.0])
@pytest.mark.parametrize("k", [0.25, 1, 7.5, 19, 19.9])
def test_threshold_is_the_root_that_brentq_finds(k, temperature):
    x = row(20, seed=2)
    c = brentq(lambda c: expit((x + c) / temperature).sum() - k, -200, 200, xtol=1e-14, rtol=1e-15)
    np.testing.assert_allclose(weights(x, k, temperature), expit((x + c) / temperature), rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [0.5, 3, 6.25])
def test_one_logit_difference_for_all(k):
    """τ·logit(y) − x is the same constant along the row."""
    x = row(9, seed=3)
    y = weights(x, k, 0.8)
    assert np.ptp(0.8 * np.log(y / (1 - y)) - x) <= 1e-12
