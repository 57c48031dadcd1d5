"""Straight-through is right to first order, reinmax to second: by enumeration, without any randomness."""

import pytest
import torch

import khot
from khot.designs import get as design_called
from strategies.subset_oracles import (
    CLOSED,
    K,
    N,
    exact_gradient,
    nonlinear,
    probabilities,
    quadratic,
    scores_of,
    subsets,
)

THETA = scores_of()


def expected_estimate(monkeypatch, estimator, design, f, theta=THETA, k=K):
    """The mean of the estimator over all subsets, each of them made the sample once."""
    sets = subsets(len(theta), k)
    monkeypatch.setattr(design_called(design), "sample", lambda self, shape=(), generator=None: sets)
    leaf = theta.expand(len(sets), -1).clone().requires_grad_()
    options = {} if estimator == "simple" else {"design": design}
    function = khot.estimators.Estimator(estimator, options)
    x = function(leaf, k)
    assert torch.equal(x.detach(), sets)
    gradients = torch.autograd.grad(f(x).sum(), leaf)[0]
    return probabilities(design, theta, k).detach() @ gradients


def relative_bias(monkeypatch, estimator, design, f):
    exact = exact_gradient(design, f, THETA, K)
    return (expected_estimate(monkeypatch, estimator, design, f) - exact).norm() / exact.norm()


CASES = [
    ("sampled_straight_through", "conditional_poisson"),
    ("sampled_straight_through", "tree_pivotal"),
    ("sampled_straight_through", "systematic"),
    ("simple", "conditional_poisson"),
    ("reinmax", "conditional_poisson"),
    ("reinmax", "tree_pivotal"),
    ("reinmax", "systematic"),
]


@pytest.mark.parametrize(("estimator", "design"), CASES)
def test_affine_losses_have_no_bias(monkeypatch, estimator, design):
    slope = torch.linspace(-1, 2, N, dtype=torch.float64)
    assert relative_bias(monkeypatch, estimator, design, lambda x: 3 + x @ slope) < 1e-10


@pytest.mark.parametrize("design", CLOSED)
def test_quadratic_losses_have_no_bias_with_reinmax_alone(monkeypatch, design):
    assert relative_bias(monkeypatch, "reinmax", design, quadratic()) < 1e-10
    assert relative_bias(monkeypatch, "sampled_straight_through", design, quadratic()) > 1e-2


@pytest.mark.parametrize(("estimator", "design"), CASES)
def test_the_bias_falls_with_the_curvature(monkeypatch, estimator, design):
    """f(εz)/ε: a half at half the ε, a quarter for reinmax."""
    slope = torch.linspace(-1, 2, N, dtype=torch.float64)

    def bias(epsilon):
        def f(x):
            return torch.exp(epsilon * (x @ slope)) / epsilon

        return relative_bias(monkeypatch, estimator, design, f)

    ratio = bias(0.01) / bias(0.02)
    expected = 0.25 if estimator == "reinmax" else 0.5
    assert abs(ratio - expected) < 0.02


def test_one_of_n_is_the_published_reinmax(monkeypatch):
    """2 ST((π + x)/2) − ½ ST(π), the form of Liu et al. (2023) for one-hot samples."""
    f = nonlinear()
    sets = subsets(N, 1)
    pi = torch.softmax(THETA, -1)
    x = sets.clone().requires_grad_()
    g = torch.autograd.grad(f(x).sum(), x)[0]

    def st(p):
        return p * (g - (p * g).sum(-1, keepdim=True))

    published = pi @ (2 * st((pi + sets) / 2) - st(pi.expand_as(sets)) / 2)
    ours = expected_estimate(monkeypatch, "reinmax", "conditional_poisson", f, THETA, 1)
    torch.testing.assert_close(ours, published)


def test_simple_is_the_covariance_times_the_gradient(monkeypatch):
    f = nonlinear()
    sets = subsets()
    p = probabilities("conditional_poisson", THETA, K)
    pi = p @ sets
    covariance = (sets.T * p) @ sets - torch.outer(pi, pi)
    x = sets.clone().requires_grad_()
    g = torch.autograd.grad(f(x).sum(), x)[0]
    ours = expected_estimate(monkeypatch, "simple", "conditional_poisson", f)
    torch.testing.assert_close(ours, p @ (g @ covariance))
