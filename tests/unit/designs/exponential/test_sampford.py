"""Sampford's design against sums over all sets, counts of draws, and sizes where rejection gives up."""

import math

import pytest
import scipy.stats
import torch
from torch.distributions import OneHotCategorical

from khot.designs import ConditionalPoisson, Sampford
from strategies.counts_of_draws import DRAWS, LEVEL, chi_square, generator
from strategies.design_examples import SIZES, probabilities, subsets

SETTLED = [1.0, 0.5, 0.0, 0.25, 0.25, 0.0, 1.0]


def by_definition(pi, k):
    """p(s) ∝ Π_s w Σ_s (1 − π) over all sets; for 0 < π < 1."""
    x = subsets(len(pi), k)
    p = torch.where(x > 0, pi / (1 - pi), 1.0).prod(-1) * (x @ (1 - pi))
    return x, p / p.sum()


@pytest.mark.parametrize(("n", "k"), [(n, k) for n, k in SIZES if n > 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_definition(n, k, seed):
    pi = probabilities(n, k, seed)
    x, p = by_definition(pi, k)
    made = Sampford(k, probs=pi)
    torch.testing.assert_close(made.log_prob(x), p.log(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(p @ x, pi, rtol=1e-10, atol=1e-10)
    joint = torch.einsum("s,si,sj->ij", p, x, x)
    torch.testing.assert_close(made.joint_inclusion, joint, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(made.covariance_matrix.sum(-1), torch.zeros_like(pi), rtol=0, atol=1e-10)
    torch.testing.assert_close(made.log_prob(made.mode).exp(), p.max())


@pytest.mark.parametrize(
    ("pi", "k"), [([0.5] * 6, 3), (SETTLED, 3), ([1.0, 1.0, 0.0], 2), ([0.5, 0.5, 1.0], 2)]
)
def test_ties_and_settled_units(pi, k):
    pi = torch.tensor(pi, dtype=torch.float64, requires_grad=True)
    made = Sampford(k, probs=pi)
    x = subsets(len(pi), k)
    p = made.log_prob(x).exp()
    torch.testing.assert_close(p.sum(), torch.ones_like(p.sum()))
    torch.testing.assert_close(p @ x, pi, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.einsum("s,si,sj->ij", p, x, x), made.joint_inclusion)
    draws = made.sample((300,), generator=generator())
    assert (draws[:, pi == 1] == 1).all()
    assert (draws[:, pi == 0] == 0).all()
    possible = p > 0
    (grad,) = torch.autograd.grad(made.log_prob(x[possible]).sum(), pi)
    assert grad.isfinite().all()


def test_one_of_n_nothing_and_everything():
    pi = probabilities(6, 1)
    x = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(Sampford(1, probs=pi).log_prob(x), OneHotCategorical(probs=pi).log_prob(x))
    for n in (1, 2, 5):
        for k in (0, n):
            made = Sampford(k, scores=torch.zeros(n))
            assert made.log_prob(made.mode) == 0
            assert (made.joint_inclusion == float(k > 0)).all()


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (7, 3), (7, 6), (8, 4)])
def test_counts_of_subsets(n, k):
    pi = probabilities(n, k)
    x, p = by_definition(pi, k)
    draws = Sampford(k, probs=pi).sample((DRAWS,), generator=generator())
    assert chi_square(draws, x, p) > LEVEL


def test_the_test_of_counts_tells_it_from_conditional_poisson():
    pi = probabilities(5, 2)
    x, p = by_definition(pi, 2)
    draws = ConditionalPoisson(2, probs=pi).sample((DRAWS,), generator=generator())
    assert chi_square(draws, x, p) < LEVEL


def test_where_rejection_gives_up():
    """n = 300, k = 60: draws with replacement until all differ would take over 10⁹ attempts."""
    n, k, draws = 300, 60, 20_000
    pi = probabilities(n, k)
    w = pi / (1 - pi)
    # P(all differ) of one draw by π and k − 1 by w, as k independent draws by w: k! e_k(w / Σw).
    polynomials = [1.0] + [0.0] * k
    for share in (w / w.sum()).tolist():
        for j in range(k, 0, -1):
            polynomials[j] += share * polynomials[j - 1]
    assert math.factorial(k) * polynomials[k] < 1e-9
    made = Sampford(k, probs=pi)
    x = made.sample((draws,), generator=generator(1))
    assert (x.sum(-1) == k).all()
    d = x.mean(0) - pi
    values, vectors = torch.linalg.eigh(made.covariance_matrix)
    kept = values > 1e-9
    assert kept.sum() == n - 1
    statistic = draws * ((vectors.T @ d)[kept] ** 2 / values[kept]).sum()
    assert scipy.stats.chi2.sf(statistic, n - 1) > LEVEL
    assert made.log_prob(x[:100]).isfinite().all()


def test_near_the_maximum_of_entropy():
    """The entropy by Monte Carlo, as the error of ``entropy`` says; conditional Poisson has the largest."""
    pi = probabilities(300, 60)
    made = Sampford(60, probs=pi)
    with pytest.raises(NotImplementedError, match=r"entropy has no closed form; take the mean of -log_prob"):
        made.entropy()
    values = -made.log_prob(made.sample((20_000,), generator=generator(2)))
    largest = ConditionalPoisson(60, probs=pi).entropy()
    assert abs(values.mean() - largest) < 5 * values.std() / math.sqrt(20_000) + 0.01


def test_many_units():
    pi = probabilities(100_000, 10)
    x = Sampford(10, probs=pi).sample((3,), generator=generator())
    assert (x.sum(-1) == 10).all()


@pytest.mark.parametrize(("n", "k"), [(4, 2), (6, 1), (6, 5), (7, 3)])
def test_gradcheck(n, k):
    theta = torch.randn(n, generator=generator(), dtype=torch.float64).requires_grad_()
    x = Sampford(k, scores=theta).mode

    def values(t):
        made = Sampford(k, scores=t)
        return made.log_prob(x), made.joint_inclusion

    assert torch.autograd.gradcheck(values, theta)
    p = Sampford(k, scores=theta).log_prob(subsets(n, k))
    (score,) = torch.autograd.grad((p.detach().exp() * p).sum(), theta)
    assert score.abs().max() < 1e-12
