"""Plackett–Luce against sums over all orders, torch.multinomial, and its claim of not having π."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.distributions import OneHotCategorical

from khot.designs import PlackettLuce
from strategies import random_scores
from strategies.counts_of_draws import DRAWS, LEVEL, chi_square, generator
from strategies.design_examples import SIZES, probabilities, subsets
from strategies.quick_run import costly

scores = partial(random_scores.scores, spread=1.5)


def by_orders(theta, k):
    """P(s) as the sum over the k! orders of successive draws ∝ w."""
    w = theta.exp().tolist()
    x = subsets(len(w), k)
    p = []
    for row in x:
        total = 0.0
        for order in itertools.permutations(row.nonzero().flatten().tolist()):
            left, chance = sum(w), 1.0
            for i in order:
                chance, left = chance * w[i] / left, left - w[i]
            total += chance
        p.append(total)
    return x, torch.tensor(p, dtype=torch.float64)


@pytest.mark.parametrize(("n", "k"), [(n, k) for n, k in SIZES if 1 < k < 6 or n < 8])
@pytest.mark.parametrize("spread", [0.0, 1.5, 4.0])
def test_sums_over_all_orders(n, k, spread):
    theta = scores(n, spread=spread)
    x, p = by_orders(theta, k)
    made = PlackettLuce(k, logits=theta)
    torch.testing.assert_close(made.log_prob(x).exp(), p, rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(made.mean, p @ x, rtol=0, atol=1e-10)
    torch.testing.assert_close(made.probs, made.mean)
    torch.testing.assert_close(made.variance, made.mean * (1 - made.mean))
    torch.testing.assert_close(made.log_prob(made.mode).exp(), p.max())


def test_ordered_draws():
    theta = scores(5)
    made = PlackettLuce(3, logits=theta)
    orders = torch.tensor(list(itertools.permutations(range(5), 3)))
    log_p = made.log_prob_ordered(orders)
    torch.testing.assert_close(log_p.exp().sum(), torch.ones((), dtype=torch.float64))
    w = theta.exp()
    first = w[2] / w.sum() * w[4] / (w.sum() - w[2]) * w[0] / (w.sum() - w[2] - w[4])
    torch.testing.assert_close(made.log_prob_ordered(torch.tensor([2, 4, 0])).exp(), first)
    # Each set is the sum of its orders.
    x = torch.zeros(60, 5, dtype=torch.float64).scatter(1, orders, 1.0)
    sums = torch.stack([log_p[(x == row).all(-1)].exp().sum() for row in subsets(5, 3)])
    torch.testing.assert_close(made.log_prob(subsets(5, 3)).exp(), sums)
    everything = PlackettLuce(5, logits=theta)
    all_orders = torch.tensor(list(itertools.permutations(range(5))))
    assert abs(everything.log_prob_ordered(all_orders).exp().sum() - 1) < 1e-12


def test_ordered_draws_with_infinite_logits():
    theta = torch.tensor([0.0, math.inf, 1.0, -math.inf, math.inf], dtype=torch.float64, requires_grad=True)
    made = PlackettLuce(3, logits=theta)
    orders = torch.tensor(list(itertools.permutations(range(5), 3)))
    log_p = made.log_prob_ordered(orders)
    assert abs(log_p.exp().sum() - 1) < 1e-12
    possible = log_p > -math.inf
    assert possible.sum() == 4
    (grad,) = torch.autograd.grad(log_p[possible].sum(), theta)
    assert grad.isfinite().all()


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (torch.tensor([0, 1]), r"indices must have k = 3 entries, got shape \(2,\)"),
        (torch.tensor([0, 1, 1]), "indices must be different, got some twice"),
        (torch.tensor([0, 1, 5]), r"indices must lie in \[0, 5\), got values in \[0, 5\]"),
    ],
)
def test_bad_orders(indices, message):
    with pytest.raises(ValueError, match=f"PlackettLuce.log_prob_ordered: {message}"):
        PlackettLuce(3, logits=scores(5)).log_prob_ordered(indices)
    with pytest.raises(TypeError, match=r"indices must be int64, got torch\.float32"):
        PlackettLuce(3, logits=scores(5)).log_prob_ordered(indices.float())


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (8, 4)])
def test_counts_of_subsets(n, k):
    theta = scores(n)
    x, p = by_orders(theta, k)
    draws = PlackettLuce(k, logits=theta).sample((DRAWS,), generator=generator())
    assert chi_square(draws, x, p) > LEVEL
    drawn = torch.multinomial(theta.exp().expand(DRAWS, n), k, generator=generator())  # the same law
    other = torch.zeros(DRAWS, n, dtype=torch.float64).scatter(1, drawn, 1.0)
    assert chi_square(other, x, p) > LEVEL


def test_one_of_n():
    theta, x = scores(6), torch.eye(6, dtype=torch.float64)
    made = PlackettLuce(1, logits=theta)
    torch.testing.assert_close(made.log_prob(x), OneHotCategorical(logits=theta).log_prob(x))
    torch.testing.assert_close(made.mean, theta.softmax(-1), rtol=0, atol=1e-10)


def test_probabilities_are_not_met():
    """Large π come out too small, by more than a tenth; π = 1 is still certain, and k = 1 exact."""
    pi = probabilities(9, 4, spread=2.0)
    made = PlackettLuce(4, logits=pi.log())
    torch.testing.assert_close(made.log_prob(subsets(9, 4)).exp(), by_orders(pi.log(), 4)[1])
    assert made.mean[pi.argmax()] < pi.max() - 0.1
    assert made.mean[pi.argmin()] > pi.min()
    pi = torch.tensor([1.0, 0.0, 0.6, 0.4], dtype=torch.float64)
    settled = PlackettLuce(2, logits=torch.where(pi == 1, math.inf, pi.log()))
    torch.testing.assert_close(settled.mean, pi, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1e3, 1e30])
def test_huge_logits_ties_and_excluded_units(scale):
    theta = torch.tensor([3.0, 1.0, 2.0, 2.0, -1.0, -math.inf], dtype=torch.float64) * scale
    theta.requires_grad_()
    made = PlackettLuce(2, logits=theta)
    x = subsets(6, 2)
    log_p = made.log_prob(x)
    expected = ((x[:, 0] == 1) & ((x[:, 2] == 1) | (x[:, 3] == 1))) / 2.0
    torch.testing.assert_close(log_p.exp(), expected.double())
    torch.testing.assert_close(made.mean, torch.tensor([1, 0, 0.5, 0.5, 0, 0], dtype=torch.float64))
    assert (log_p[x[:, 5] == 1] == -math.inf).all()
    possible = log_p > -math.inf
    (grad,) = torch.autograd.grad(log_p[possible].sum() + made.mean.square().sum(), theta)
    assert grad.isfinite().all()
    # Only two can be drawn, and so they are.
    few = PlackettLuce(2, logits=torch.tensor([1.0, -math.inf, 5.0]))
    assert few.log_prob(torch.tensor([1.0, 0.0, 1.0])) == 0


def test_many_units():
    theta = torch.randn(100_000, generator=generator())
    made = PlackettLuce(1000, logits=theta)
    x = made.sample((3,), generator=generator())
    assert (x.sum(-1) == 1000).all()
    log_p = made.log_prob(x)
    assert log_p.isfinite().all()
    # One order of 1000! is less likely than the set.
    order = x[0].nonzero().flatten()
    assert made.log_prob_ordered(order) < log_p[0]


def test_float32_is_the_rounded_float64():
    theta = scores(7)
    x = subsets(7, 3)
    wide, narrow = PlackettLuce(3, logits=theta), PlackettLuce(3, logits=theta.float())
    assert narrow.log_prob(x.float()).dtype == narrow.mean.dtype == torch.float32
    torch.testing.assert_close(narrow.log_prob(x.float()).double(), wide.log_prob(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "k"), [(4, 2), costly(5, 1), costly(5, 4)])
def test_gradcheck(n, k):
    theta = scores(n).requires_grad_()
    x = subsets(n, k)
    order = torch.arange(k)

    def values(t):
        made = PlackettLuce(k, logits=t)
        return made.log_prob(x), made.mean, made.log_prob_ordered(order)

    assert torch.autograd.gradcheck(values, theta)
    log_p = values(theta)[0]
    (score,) = torch.autograd.grad((log_p.detach().exp() * log_p).sum(), theta)
    assert score.abs().max() < 1e-11
