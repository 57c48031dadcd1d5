"""normal_topk: the root of Σ Φ((x + c)/τ) = k, and what its weights are the probability of."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

import khot

pytestmark = pytest.mark.usefixtures("implementation")

SAMPLES = 200_000


def row(n: int, seed: int) -> np.ndarray:
    return 2 * np.random.default_rng(seed).standard_normal(n)


def weights(x: np.ndarray, k: float, temperature: float = 1.0) -> np.ndarray:
    return khot.normal_topk(torch.tensor(x), k, temperature=temperature).numpy()


def threshold(x: np.ndarray, k: float, temperature: float) -> float:
    return brentq(lambda c: norm.cdf((x + c) / temperature).sum() - k, -400, 400, xtol=1e-14, rtol=1e-15)


def noise(n: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((SAMPLES, n))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 11.0])
@pytest.mark.parametrize("k", [0.25, 1, 7.5, 19, 19.9])
def test_threshold_is_the_root_that_brentq_finds(k, temperature):
    x = row(20, seed=2)
    expected = norm.cdf((x + threshold(x, k, temperature)) / temperature)
    np.testing.assert_allclose(weights(x, k, temperature), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [0.5, 3, 6.25])
def test_one_difference_of_quantiles_for_all(k):
    """τ Φ⁻¹(y) − x is the same constant along the row, however small y is; near 1 it cannot tell."""
    x = row(9, seed=3)
    y = weights(x, k, 0.8)
    told = y < 0.9
    assert told.sum() >= 3
    assert np.ptp((0.8 * norm.ppf(y) - x)[told]) <= 1e-11


def test_weights_are_probabilities_to_exceed_one_fixed_threshold():
    x, k, temperature = row(6, seed=4), 2.5, 1.3
    y = weights(x, k, temperature)
    exceeds = x + temperature * noise(6) >= -threshold(x, k, temperature)
    deviation = np.sqrt(y * (1 - y) / SAMPLES)
    assert (np.abs(exceeds.mean(0) - y) <= 5 * deviation).all()


def test_two_scores_in_closed_form():
    """The threshold is their mean: y₁ = Φ(Δ/2τ)."""
    np.testing.assert_allclose(weights(np.array([3.0, 1.0]), 1, 0.5), norm.cdf([2.0, -2.0]), rtol=1e-14)


def test_weights_are_not_the_chances_to_be_among_the_largest_noisy_scores():
    """There both sides of the comparison are noisy, so that chance is Φ(Δ/√2τ) for two scores."""
    x = np.array([2.0, 0.0])
    wins = (x + noise(2)).argmax(1) == 0
    assert abs(wins.mean() - norm.cdf(2 / np.sqrt(2))) <= 5 * np.sqrt(0.25 / SAMPLES)
    assert wins.mean() - weights(x, 1)[0] > 0.07


@pytest.mark.parametrize("k", [0.4, 2.0, 4.7])
def test_the_derivatives_are_those_of_the_root(k):
    """By finite differences of brentq's answer, in the scores, the budget and the temperature."""
    x, temperature, step = row(6, seed=5), 0.9, 1e-5

    def expected(x, k, temperature):
        return norm.cdf((x + threshold(x, k, temperature)) / temperature)

    inputs = [torch.tensor(v, dtype=torch.float64) for v in (x, k, temperature)]
    jacobians = torch.autograd.functional.jacobian(
        lambda x, k, t: khot.normal_topk(x, k, temperature=t), tuple(inputs)
    )
    for i, unit in enumerate(np.eye(6)):
        difference = expected(x + step * unit, k, temperature) - expected(x - step * unit, k, temperature)
        np.testing.assert_allclose(jacobians[0][:, i], difference / (2 * step), rtol=0, atol=1e-8)
    by_k = (expected(x, k + step, temperature) - expected(x, k - step, temperature)) / (2 * step)
    by_t = (expected(x, k, temperature + step) - expected(x, k, temperature - step)) / (2 * step)
    np.testing.assert_allclose(jacobians[1], by_k, rtol=0, atol=1e-8)
    np.testing.assert_allclose(jacobians[2], by_t, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
@pytest.mark.parametrize("difference", [4.0, 10.0, 20.0])
def test_a_small_weight_has_all_its_digits(difference, dtype, rtol):
    y = khot.normal_topk(torch.tensor([difference, 0.0], dtype=dtype), 1)
    assert y[1].item() == pytest.approx(norm.cdf(-difference / 2), rel=rtol, abs=0)


def test_a_weight_that_rounds_to_one_keeps_its_gradient():
    """w = φ(Φ⁻¹(y)) is taken from 1 − y: Φ(9) is 1 in float64, φ(9) is 1e-18."""
    x = torch.tensor([18.0, 0.0], dtype=torch.float64, requires_grad=True)
    y = khot.normal_topk(x, 1)
    assert y[0].item() == 1
    (grad,) = torch.autograd.grad(y[1], x)
    np.testing.assert_allclose(grad.numpy(), norm.pdf(9) / 2 * np.array([-1, 1]), rtol=1e-9)
