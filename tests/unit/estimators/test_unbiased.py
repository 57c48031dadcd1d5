"""Unbiased estimators against the exact gradient, by a test that the two known mistakes fail."""

import pytest
import scipy.stats
import torch

from khot.designs import ConditionalPoisson
from khot.designs.registry import names
from khot.estimators import estimate_gradient, get
from khot.estimators._laws import is_scored
from khot.relaxations.noise.gumbel import gumbel_topk
from strategies.quick_run import costly
from strategies.subset_oracles import exact_gradient, nonlinear, quadratic, scores_of, seeded

N, K = 6, 3
LAWS = list(filter(is_scored, names()))
ESTIMATES = 20_000
LEVEL = 1e-3 / 40  # there are fewer than 40 such tests in this file
THETA = 2 * scores_of(N, seed=2)


def p_value(estimates, exact):
    """Of the mean's distance from ``exact``; gradients sum to 0, so one coordinate says nothing new."""
    torch.testing.assert_close(estimates.sum(-1), torch.zeros(len(estimates), dtype=torch.float64))
    kept, wanted = estimates[:, :-1], exact[:-1]
    away = kept.mean(0) - wanted
    covariance = torch.cov(kept.T) / len(kept)
    return scipy.stats.chi2.sf(away @ torch.linalg.solve(covariance, away), len(away))


def gradients(estimator, f, samples=4, seed=0):
    rows = THETA.expand(ESTIMATES, -1)
    return estimate_gradient(f, rows, K, estimator, samples=samples, generator=seeded(seed))


@pytest.mark.parametrize("law", [costly(law) if law == "adjusted_pareto" else law for law in LAWS])
@pytest.mark.full
def test_score_function(law):
    f = nonlinear(N)
    exact = exact_gradient(law, f, THETA, K)
    assert p_value(gradients(get("score_function", design=law), f), exact) > LEVEL


@pytest.mark.parametrize("law", [costly(law) if "pareto" in law else law for law in LAWS])
def test_the_test_tells_laws_apart(law):
    """Another law's gradient is rejected, so the law matters, and so does the test."""
    f = nonlinear(N)
    other = "conditional_poisson" if law != "conditional_poisson" else "plackett_luce"
    exact = exact_gradient(other, f, THETA, K)
    assert p_value(gradients(get("score_function", design=law), f), exact) < LEVEL


def test_score_function_needs_no_gradient_of_the_loss():
    def f(x):
        return (x[..., 0] > x[..., 1]).double() * x[..., 2].round()

    exact = exact_gradient("conditional_poisson", f, THETA, K)
    assert p_value(gradients("score_function", f, samples=2), exact) > LEVEL


@pytest.mark.parametrize("design", ["conditional_poisson", "tree_pivotal"])
def test_reinmax_on_a_quadratic_loss(design):
    f = quadratic(N)
    exact = exact_gradient(design, f, THETA, K)
    assert p_value(gradients(get("reinmax", design=design), f, samples=2), exact) > LEVEL


@pytest.mark.parametrize("estimator", ["score_function", "reinmax"])
def test_mistake_of_plackett_luce_samples_with_conditional_poisson_marginals(monkeypatch, estimator):
    def gumbel_sample(self, sample_shape=(), generator=None):
        rows = self.logits.detach().expand(*sample_shape, *self.logits.shape)
        return gumbel_topk(rows, int(self.k), hard=True, generator=generator)

    monkeypatch.setattr(ConditionalPoisson, "sample", gumbel_sample)
    f = quadratic(N)
    exact = exact_gradient("conditional_poisson", f, THETA, K)
    assert p_value(gradients(estimator, f), exact) < LEVEL


@pytest.mark.parametrize("includes_itself", [False, True])
def test_mistake_of_a_baseline_that_includes_its_own_sample(includes_itself):
    f, samples = nonlinear(N), 4
    design = ConditionalPoisson(K, logits=THETA)
    x = design.sample((ESTIMATES, samples), generator=seeded(1))
    losses = f(x).unsqueeze(-1)
    total = losses.sum(1, keepdim=True)
    baseline = total / samples if includes_itself else (total - losses) / (samples - 1)
    estimates = ((losses - baseline) * (x - design.mean)).mean(1)
    exact = exact_gradient("conditional_poisson", f, THETA, K)
    assert (p_value(estimates, exact) < LEVEL) == includes_itself
    ours = p_value(gradients("score_function", f, samples), exact)
    assert ours > LEVEL
