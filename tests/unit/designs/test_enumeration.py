"""n ≤ 10: sums over all subsets against the closed forms."""

import math

import pytest
import torch
from torch.distributions import OneHotCategorical, kl_divergence

from khot.designs import ConditionalPoisson, KHotCategorical, Poisson, Systematic, TreePivotal
from strategies.design_examples import CLOSED, SIZES, probabilities, subsets

TIED = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
SETTLED = [1.0, 0.5, 0.0, 0.25, 0.25, 0.0, 1.0]


def check(design, x):
    p = design.log_prob(x).exp()
    torch.testing.assert_close(p.sum(), torch.ones_like(p.sum()))
    pi = (p.unsqueeze(-1) * x).sum(0)
    torch.testing.assert_close(pi, design.mean, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(pi * (1 - pi), design.variance, rtol=1e-8, atol=1e-10)
    joint = torch.einsum("s,si,sj->ij", p, x, x)
    torch.testing.assert_close(joint, design.joint_inclusion, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(joint - pi[:, None] * pi, design.covariance_matrix, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(torch.special.entr(p).sum(), design.entropy(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(design.log_prob(design.mode).exp(), p.max())


@pytest.mark.parametrize("design", CLOSED)
@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("seed", [0, 1])
def test_closed_forms(design, n, k, seed):
    pi = probabilities(n, k, seed)
    made = design(k, probs=pi)
    check(made, subsets(n, k))
    torch.testing.assert_close(made.mean, pi, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        made.covariance_matrix.sum(-1), torch.zeros(n, dtype=torch.float64), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("design", CLOSED)
@pytest.mark.parametrize(("pi", "k"), [(TIED, 3), (SETTLED, 3), ([1.0, 1.0, 0.0], 2), ([0.5, 0.5, 1.0], 2)])
def test_ties_and_settled_units(design, pi, k):
    pi = torch.tensor(pi, dtype=torch.float64)
    made = design(k, probs=pi)
    check(made, subsets(len(pi), k))
    p = made.log_prob(subsets(len(pi), k)).exp()
    impossible = (subsets(len(pi), k)[:, pi == 0].sum(-1) > 0) | (subsets(len(pi), k)[:, pi == 1] == 0).any(
        -1
    )
    assert (p[impossible] == 0).all()


@pytest.mark.parametrize("large", [20.0, 150.0, 190.0, 250.0])
def test_nearly_certain_units(large):
    """The polynomial is near the end of float64, and its square beyond it."""
    theta = torch.tensor([large, large, 0.0, 0.5, 1.0, 0.2, -0.3], dtype=torch.float64)
    check(ConditionalPoisson(3, logits=theta), subsets(7, 3))


@pytest.mark.parametrize("design", [Systematic, TreePivotal])
@pytest.mark.parametrize("pi", [[0.3, 0.9, 0.4, 0.6, 0.25], [0.5], [1.0, 0.3, 0.0, 0.8], [0.2, 0.2]])
def test_sums_that_are_not_whole(design, pi):
    pi = torch.tensor(pi, dtype=torch.float64)
    k = float(pi.sum())
    made = design(k, probs=pi)
    x = torch.cat([subsets(len(pi), math.floor(k)), subsets(len(pi), math.ceil(k))])
    check(made, x)
    draws = made.sample((500,), generator=torch.Generator().manual_seed(0))
    assert made.support.check(draws).all()
    assert set(draws.sum(-1).tolist()) == {math.floor(k), math.ceil(k)}
    indices = made.sample_indices((500,), generator=torch.Generator().manual_seed(0))
    assert indices.shape == (500, math.ceil(k))
    assert ((indices == len(pi)).sum(-1) <= 1).all()
    assert (indices == len(pi)).any()
    with pytest.raises(ValueError, match="support"):
        made.log_prob(torch.ones_like(pi) if len(pi) > 1 else 2 * torch.ones_like(pi))


def test_what_is_off_the_support_is_impossible():
    for design in CLOSED:
        made = design(2, probs=probabilities(5, 2), validate_args=False)
        x = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 5])
        assert (made.log_prob(x) == -math.inf).all()


@pytest.mark.parametrize("design", CLOSED)
def test_one_of_n_is_one_hot_categorical(design):
    pi = probabilities(6, 1)
    x = torch.eye(6, dtype=torch.float64)
    other = OneHotCategorical(probs=pi)
    torch.testing.assert_close(design(1, probs=pi).log_prob(x), other.log_prob(x))
    torch.testing.assert_close(design(1, probs=pi).entropy(), other.entropy())


def test_logits_are_natural_parameters_only_for_conditional_poisson():
    theta = torch.tensor([1.0, 0.3, -0.5, 0.2], dtype=torch.float64)
    torch.testing.assert_close(KHotCategorical(1, logits=theta).mean, theta.softmax(-1))
    weights = (subsets(4, 2) @ theta).softmax(0)
    torch.testing.assert_close(ConditionalPoisson(2, logits=theta).log_prob(subsets(4, 2)).exp(), weights)
    gates = torch.sigmoid(torch.logit(TreePivotal(2, scores=theta).mean))
    torch.testing.assert_close(torch.logit(gates).diff(), theta.diff())


def test_maximum_entropy():
    pi = probabilities(8, 3)
    entropies = [design(3, probs=pi).entropy() for design in (Systematic, TreePivotal, ConditionalPoisson)]
    assert entropies[0] < entropies[1] < entropies[2]


def test_joint_inclusion_of_conditional_poisson_by_ratios():
    """The textbook formula, which divides by zero on ties; here there are none."""
    theta = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    design = ConditionalPoisson(7, logits=theta)
    pi, w = design.mean, theta.exp()
    joint = (pi[:, None] * w - pi * w[:, None]) / (w - w[:, None])
    off = ~torch.eye(30, dtype=torch.bool)
    torch.testing.assert_close(design.joint_inclusion[off], joint[off], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", [0, 1])
def test_kl_divergence_of_conditional_poisson(seed):
    p = ConditionalPoisson(3, probs=probabilities(7, 3, seed))
    q = ConditionalPoisson(3, logits=torch.randn(7, generator=torch.Generator().manual_seed(seed)).double())
    x = subsets(7, 3)
    truth = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).sum()
    torch.testing.assert_close(kl_divergence(p, q), truth)
    assert kl_divergence(p, p) == 0


def test_kl_divergence_where_one_cannot_draw_what_the_other_can():
    theta = torch.tensor([1.0, 0.3, -0.5, 0.2], dtype=torch.float64)
    never = torch.tensor([1.0, 0.3, -0.5, -math.inf], dtype=torch.float64)
    surely = torch.tensor([math.inf, 0.3, -0.5, 0.1], dtype=torch.float64)
    full = ConditionalPoisson(2, logits=theta)
    for settled in (never, surely):
        part = ConditionalPoisson(2, logits=settled)
        x = subsets(4, 2)
        p = part.log_prob(x).exp()
        truth = torch.where(p > 0, p * (part.log_prob(x) - full.log_prob(x)), 0).sum()
        torch.testing.assert_close(kl_divergence(part, full), truth)
        assert kl_divergence(full, part) == math.inf
        assert kl_divergence(part, part) == 0


def test_exponential_family_members():
    theta = torch.tensor([1.0, 0.3, -0.5, 0.2, 5.0], dtype=torch.float64)
    design = ConditionalPoisson(2, logits=theta)
    torch.testing.assert_close(design.natural_parameters, theta)
    torch.testing.assert_close(design.log_normalizer, (subsets(5, 2) @ theta).logsumexp(0))


def test_poisson():
    design = Poisson(probs=torch.tensor([0.2, 0.7, 0.5, 1.0], dtype=torch.float64))
    x = design.enumerate_support()
    assert x.shape == (16, 4)
    assert x.unique(dim=0).shape == (16, 4)
    p = design.log_prob(x).exp()
    torch.testing.assert_close(p.sum(), torch.ones_like(p.sum()))
    torch.testing.assert_close(torch.einsum("s,si,sj->ij", p, x, x), design.joint_inclusion)
    torch.testing.assert_close(torch.special.entr(p).sum(), design.entropy(), rtol=1e-6, atol=1e-6)
    assert design.log_prob(design.mode).exp() == p.max()
    draws = design.sample((20_000,), generator=torch.Generator().manual_seed(0))
    assert (draws.mean(0) - design.mean).abs().max() < 0.02
    assert design.expand((3, 2)).sample((5,)).shape == (5, 3, 2, 4)
