"""laplace_topk against the closed form on sorted scores (LapSum), and its derivative in the budget."""

import numpy as np
import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("implementation")


def cdf(a: np.ndarray) -> np.ndarray:
    tail = np.exp(-np.abs(a)) / 2
    return np.where(a > 0, 1 - tail, tail)


def closed_form(x: np.ndarray, k: float, temperature: float = 1.0) -> np.ndarray:
    """Between two neighbours of the sorted scores the threshold β solves a quadratic equation in e^β."""
    z = np.sort(x / temperature)[::-1]
    n = len(z)
    a, b = np.ones(n), np.ones(n)  # Σ e^{−(zᵢ − z_m)} over i ≤ m, Σ e^{zᵢ − z_m} over i ≥ m
    for m in range(1, n):
        a[m] = 1 + a[m - 1] * np.exp(z[m] - z[m - 1])
    for m in range(n - 2, -1, -1):
        b[m] = 1 + b[m + 1] * np.exp(z[m + 1] - z[m])
    at_scores = np.arange(1, n + 1) - a / 2 + (b - 1) / 2
    m = int((at_scores <= k).sum())
    if m == 0:
        centre, shift = z[0], np.log(b[0] / (2 * k))
    elif m == n:
        centre, shift = z[-1], np.log(2 * (n - k) / a[-1])
    else:
        g, d = z[m - 1] - z[m], k - m
        r = np.sqrt(d * d + a[m - 1] * b[m] * np.exp(-g))
        if d > 0:
            centre, shift = z[m], np.log(b[m]) - np.log(d + r)
        elif d == 0:
            centre, shift = z[m - 1], (np.log(b[m]) - g - np.log(a[m - 1])) / 2
        else:
            centre, shift = z[m - 1], np.log((r - d) / a[m - 1])
    return cdf((x / temperature - centre) - shift)


def row(n: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(n)


def weights(x: np.ndarray, k, temperature=1.0) -> np.ndarray:
    return khot.laplace_topk(torch.tensor(x), k, temperature=temperature).numpy()


BUDGETS = [0.01, 0.5, 1, 3, 7.25, 12, 16.5, 19, 19.9]


@pytest.mark.parametrize("temperature", [0.2, 1.0, 9.0])
@pytest.mark.parametrize("k", BUDGETS)
def test_equals_the_closed_form(k, temperature):
    for seed in range(5):
        x = row(20, seed)
        np.testing.assert_allclose(
            weights(x, k, temperature), closed_form(x, k, temperature), rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("scale", [1e4, 1e30])
@pytest.mark.parametrize("k", BUDGETS)
def test_equals_the_closed_form_for_huge_scores(k, scale):
    """Also with ties, which share what the others leave them."""
    for x in (row(20, 1, scale), scale * np.round(row(20, 2))):
        expected = closed_form(x, k)
        assert abs(expected.sum() - k) <= 1e-9  # the oracle is right
        np.testing.assert_allclose(weights(x, k), expected, rtol=0, atol=1e-12)


def test_equal_scores_share_the_budget():
    np.testing.assert_allclose(weights(np.full(8, -3.0), 2.5), 2.5 / 8, rtol=1e-14)


def test_a_budget_and_a_temperature_for_each_row():
    x = np.stack([row(9, seed) for seed in range(4)])
    k, temperature = np.array([0.5, 2, 4.5, 8]), np.array([0.1, 1, 3, 0.5])
    expected = [closed_form(*problem) for problem in zip(x, k, temperature, strict=True)]
    np.testing.assert_allclose(weights(x, torch.tensor(k), torch.tensor(temperature)), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [0.3, 2.0, 4.6])
def test_the_derivative_in_the_budget_is_w_over_its_sum(k):
    x, step = row(7, 3), 1e-6
    y = closed_form(x, k)
    w = np.minimum(y, 1 - y)
    by_differences = (closed_form(x, k + step) - closed_form(x, k - step)) / (2 * step)
    np.testing.assert_allclose(by_differences, w / w.sum(), rtol=0, atol=1e-8)
    budget = torch.tensor(k, dtype=torch.float64, requires_grad=True)
    result = khot.laplace_topk(torch.tensor(x), budget)
    ours = [torch.autograd.grad(result[i], budget, retain_graph=True)[0].item() for i in range(7)]
    np.testing.assert_allclose(ours, w / w.sum(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3.5])
def test_the_jacobian_is_that_of_the_closed_form(k):
    x, step, temperature = row(6, 4), 1e-6, 0.7
    jacobian = torch.autograd.functional.jacobian(
        lambda t: khot.laplace_topk(t, k, temperature=temperature), torch.tensor(x)
    )
    for i, unit in enumerate(np.eye(6)):
        difference = closed_form(x + step * unit, k, temperature) - closed_form(
            x - step * unit, k, temperature
        )
        np.testing.assert_allclose(jacobian[:, i].numpy(), difference / (2 * step), rtol=0, atol=1e-8)
