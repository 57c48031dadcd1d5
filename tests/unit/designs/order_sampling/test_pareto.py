"""Pareto sampling: its integral by scipy, its sums over all sets, its draws, and how far it is from π."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit

from khot import sigmoid_topk
from khot.designs import AdjustedPareto, Pareto
from strategies.counts_of_draws import DRAWS, LEVEL, chi_square, generator
from strategies.design_examples import SIZES, probabilities, subsets
from strategies.quick_run import costly

KINDS = [Pareto, AdjustedPareto]


def log_inverse_quantiles(pi, adjusted):
    """log 1/Q at the median of U, by the definition."""
    pi = pi.numpy()
    d = (pi * (1 - pi)).sum()
    return np.log(pi / (1 - pi)) - adjusted * pi * (1 - pi) * (pi - 0.5) / d**2


@pytest.mark.parametrize("design", KINDS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_sums_over_all_sets(design, n, k):
    made = design(k, probs=probabilities(n, k))
    x = subsets(n, k)
    p = made.log_prob(x).exp()
    torch.testing.assert_close(p.sum(), torch.ones_like(p.sum()), rtol=0, atol=1e-13)
    torch.testing.assert_close(p @ x, made.true_inclusion, rtol=0, atol=1e-12)
    torch.testing.assert_close(made.mean, made.true_inclusion)
    torch.testing.assert_close(made.variance, made.mean * (1 - made.mean))
    torch.testing.assert_close(torch.einsum("s,si,sj->ij", p, x, x), made.joint_inclusion)
    torch.testing.assert_close(made.log_prob(made.mode).exp(), p.max())


@pytest.mark.parametrize("design", KINDS)
def test_the_integral(design):
    """P(all of s above z, the largest of the others at z), over z."""
    pi = probabilities(6, 3)
    t = log_inverse_quantiles(pi, design is AdjustedPareto)
    for x in subsets(6, 3)[::4]:
        s = x.numpy() > 0

        def density(z, s=s):
            below = expit(z - t)
            return (1 - below[s]).prod() * below[~s].prod() * (1 - below[~s]).sum()

        truth = quad(density, -60, 60, points=[-5, 0, 5], epsabs=1e-13, limit=500)[0]
        assert abs(design(3, probs=pi).log_prob(x).exp() - truth) < 1e-11


@pytest.mark.parametrize("design", KINDS)
@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (8, 4)])
def test_counts_of_subsets(design, n, k):
    made = design(k, probs=probabilities(n, k))
    draws = made.sample((DRAWS,), generator=generator())
    assert chi_square(draws, subsets(n, k), made.log_prob(subsets(n, k)).exp()) > LEVEL


def test_two_units_in_closed_form():
    """The difference of two logistic variables is below δ with probability e^δ(e^δ − 1 − δ)/(e^δ − 1)²."""
    e, delta = 81.0, math.log(81)
    made = Pareto(1, probs=torch.tensor([0.9, 0.1], dtype=torch.float64))
    assert abs(made.mean[0] - e * (e - 1 - delta) / (e - 1) ** 2) < 1e-12


def test_how_far_from_the_wanted_probabilities():
    pi = probabilities(10, 5)
    errors = [(kind(5, probs=pi).mean - pi).abs().max() for kind in KINDS]
    assert 0.004 < errors[0] < 0.005
    assert errors[1] < 0.0011
    pi = probabilities(300, 60)
    errors = [(kind(60, probs=pi).mean - pi).abs().max() for kind in KINDS]
    assert errors[1] < errors[0] / 3 < 1e-5


@pytest.mark.parametrize("spread", [3.0, 8.0, 20.0, 60.0])
def test_the_correction_never_harms_where_little_is_random(spread):
    """At d = Σπ(1 − π) < ½, where the published correction has no bound."""
    seen = 0
    for seed in range(40):
        seeded = generator(seed)
        n = int(torch.randint(2, 9, (), generator=seeded))
        k = int(torch.randint(1, n, (), generator=seeded))
        pi = sigmoid_topk(spread * torch.randn(n, generator=seeded, dtype=torch.float64), k)
        if (pi * (1 - pi)).sum() < 0.5:
            seen += 1
            errors = [(kind(k, probs=pi).mean - pi).abs().sum() for kind in KINDS]
            assert errors[1] <= errors[0] + 1e-15
    assert seen >= 5


def test_the_published_correction_where_much_is_random():
    pi = probabilities(7, 3)
    d = (pi * (1 - pi)).sum()
    assert d > 0.5
    published = log_inverse_quantiles(pi, adjusted=True)
    found = AdjustedPareto(3, probs=pi)._scores()
    torch.testing.assert_close(found, torch.from_numpy(published), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("design", KINDS)
def test_certain_and_impossible_units_beside_others_that_nearly_are(design):
    rows = [
        (1, torch.tensor([1e-8, 1e-10, 1.0, 4.5e-7, 0.0], dtype=torch.bfloat16)),
        (1, torch.tensor([1.0, 0.0, 6e-163], dtype=torch.float64)),
        (3, torch.tensor([1.0, 1.0, 1.0, 1e-300], dtype=torch.float64)),
    ]
    for k, pi in rows:
        made = design(k, probs=pi)
        x = made.sample((1000,), generator=generator())
        assert (x[:, pi == 1] == 1).all()
        assert (x[:, pi == 0] == 0).all()
        assert (made.mode == pi.round()).all()
        assert (made.mean - pi).abs().max() < 1e-5
        assert made.log_prob(x).isfinite().all()
    near = design(1, scores=torch.tensor([12.0, 0.0, 0.0], dtype=torch.float64))
    assert (near.mean - near.probs).abs().max() < 0.004


@pytest.mark.parametrize("design", KINDS)
def test_gradients_where_nearly_all_is_settled(design):
    rows = [
        (2, [1e4, 1.0, 0.0, -1e4, 5.0, 1e3]),
        (5, [-344.0, -344.0, -344.0, -344.0, -1032.0, -344.0]),
        (3, [-954.0, 0.0, -2863.0, -1909.0, 1909.0]),
        (1, [0.0, -709.0, -711.0, -720.0]),
    ]
    for k, values in rows:
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        made = design(k, scores=x)
        log_p = made.log_prob(made.sample((5,), generator=generator()))
        for value in (log_p, made.mean, made.joint_inclusion, made.covariance_matrix):
            assert value.isfinite().all()
            total = (value * torch.arange(1.0, value.numel() + 1).view_as(value)).sum()
            assert torch.autograd.grad(total, x, retain_graph=True)[0].isfinite().all()


@pytest.mark.parametrize("design", KINDS)
def test_settled_units_and_wide_spreads(design):
    pi = torch.tensor([[1.0, 0.5, 0.0, 0.25, 0.25, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]).double()
    made = design(3, probs=pi.requires_grad_())
    x = subsets(7, 3).unsqueeze(1)
    log_p = made.log_prob(x)
    torch.testing.assert_close(log_p.exp().sum(0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close((log_p.exp().unsqueeze(-1) * x).sum(0), made.mean)
    (grad,) = torch.autograd.grad(log_p[log_p > -math.inf].sum() + made.mean.square().sum(), pi)
    assert grad.isfinite().all()
    wide = design(2, scores=torch.tensor([20.0, 12.0, 0.0, 0.0, -18.0], dtype=torch.float64))
    p = wide.log_prob(subsets(5, 2)).exp()
    assert abs(p.sum() - 1) < 1e-12
    for n in (1, 2, 5):
        for k in (0, n):
            made = design(k, scores=torch.zeros(n))
            assert abs(made.log_prob(made.mode)) < 1e-6
            assert (made.mean == float(k > 0)).all()


@pytest.mark.parametrize("design", KINDS)
def test_many_units(design):
    for k, dtype in ((10, torch.float32), (40_000, torch.float64)):
        made = design(k, probs=probabilities(100_000, k, dtype=dtype))
        x = made.sample((2,), generator=generator())
        assert (x.sum(-1) == k).all()
        assert made.log_prob(x).isfinite().all()


@pytest.mark.parametrize("design", KINDS)
@pytest.mark.parametrize(("n", "k"), [(4, 2), costly(5, 1), costly(5, 4)])
def test_gradcheck(design, n, k):
    theta = torch.randn(n, generator=generator(), dtype=torch.float64).requires_grad_()
    x = subsets(n, k)

    def values(t):
        made = design(k, scores=t)
        return made.log_prob(x), made.mean

    assert torch.autograd.gradcheck(values, theta)
    log_p = values(theta)[0]
    (score,) = torch.autograd.grad((log_p.detach().exp() * log_p).sum(), theta)
    assert score.abs().max() < 1e-12
