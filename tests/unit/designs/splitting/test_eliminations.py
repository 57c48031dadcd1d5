"""Tillé's elimination and Midzuno's method, against the procedures followed step by step."""

import itertools
import math

import pytest
import torch

from khot.designs import Midzuno, Tille
from strategies.design_examples import ELIMINATIONS, SIZES, probabilities, subsets

SETTLED = [1.0, 0.5, 0.0, 0.25, 0.25, 0.0, 1.0]


def capped(sizes, m):
    """Probabilities proportional to size with sum m: those above 1 are set to 1 until none is."""
    held = set()
    while True:
        rest = sum(p for i, p in enumerate(sizes) if i not in held)
        share = [1.0 if i in held else (m - len(held)) * p / rest for i, p in enumerate(sizes)]
        more = {i for i, p in enumerate(share) if p > 1 and i not in held}
        if not more:
            return share
        held |= more


def law_of_elimination(pi):
    """P(set) by following every order in which units may go; for 0 < π < 1."""
    n, k = len(pi), round(sum(pi))
    law = {frozenset(range(n)): 1.0}
    before = [1.0] * n
    for m in range(n - 1, k - 1, -1):
        now = capped(pi, m)
        after = {}
        for kept, p in law.items():
            for i in kept:
                rest = kept - {i}
                after[rest] = after.get(rest, 0.0) + p * (1 - now[i] / before[i])
        law, before = after, now
    return law


def vector(law, n, k):
    return torch.tensor(
        [law.get(frozenset(chosen), 0.0) for chosen in itertools.combinations(range(n), k)],
        dtype=torch.float64,
    )


@pytest.mark.parametrize(("n", "k"), SIZES[1:])
@pytest.mark.parametrize("spread", [0.3, 1.5, 4.0])
def test_log_prob_is_that_of_the_procedure(n, k, spread):
    pi = probabilities(n, k, spread=spread)
    x = subsets(n, k)
    truth = vector(law_of_elimination(pi.tolist()), n, k)
    torch.testing.assert_close(Tille(k, probs=pi).log_prob(x).exp(), truth, rtol=1e-8, atol=1e-10)
    law = law_of_elimination((1 - pi).tolist())
    truth = vector({frozenset(range(n)) - kept: p for kept, p in law.items()}, n, k)
    torch.testing.assert_close(Midzuno(k, probs=pi).log_prob(x).exp(), truth, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("design", ELIMINATIONS)
@pytest.mark.parametrize(
    ("pi", "k"),
    [
        *((probabilities(n, k, seed).tolist(), k) for n, k in SIZES for seed in (0, 1)),
        ([0.5] * 6, 3),
        (SETTLED, 3),
        ([1.0, 1.0, 0.0], 2),
        ([0.5, 0.5, 1.0], 2),
        ([1 / 3] * 3 + [0.5] * 2, 2),
        ([0.0] * 3, 0),
        ([1.0] * 3, 3),
        ([1.0], 1),
    ],
)
def test_sums_over_all_subsets(design, pi, k):
    pi = torch.tensor(pi, dtype=torch.float64)
    made, x = design(k, probs=pi), subsets(len(pi), k)
    p = made.log_prob(x).exp()
    assert abs(p.sum() - 1) < 1e-12
    torch.testing.assert_close(p @ x, pi, rtol=1e-10, atol=1e-12)
    joint = torch.einsum("s,si,sj->ij", p, x, x)
    torch.testing.assert_close(made.joint_inclusion, joint, rtol=1e-9, atol=1e-12)
    assert (made.covariance_matrix - torch.diag(made.variance) <= 1e-12).all()
    draws = made.sample((500,), generator=torch.Generator().manual_seed(0))
    assert (draws.sum(-1) == k).all()
    assert (draws[:, pi == 1] == 1).all()
    assert (draws[:, pi == 0] == 0).all()
    assert (p[x[:, pi == 0].sum(-1) > 0] == 0).all()


def test_midzuno_is_one_unit_and_then_simple_random_sampling():
    """Where all π are at least (k − 1)/(n − 1)."""
    n, k = 6, 3
    first = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.1, 0.0], dtype=torch.float64)
    pi = first + (1 - first) * (k - 1) / (n - 1)
    truth = subsets(n, k) @ first / math.comb(n - 1, k - 1)
    torch.testing.assert_close(Midzuno(k, probs=pi).log_prob(subsets(n, k)).exp(), truth)


@pytest.mark.parametrize("design", ELIMINATIONS)
def test_equal_probabilities_are_simple_random_sampling(design):
    p = design(3, probs=torch.full((7,), 3 / 7, dtype=torch.float64)).log_prob(subsets(7, 3)).exp()
    torch.testing.assert_close(p, torch.full((35,), 1 / 35, dtype=torch.float64))


@pytest.mark.parametrize("design", ELIMINATIONS)
@pytest.mark.parametrize(("n", "k"), [(4, 2), (6, 1), (6, 5), (7, 3)])
def test_gradcheck(design, n, k):
    scores = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    p = design(k, scores=scores).log_prob(subsets(n, k))
    likely = subsets(n, k)[p.argmax()]

    def values(x):
        made = design(k, scores=x)
        return made.log_prob(likely), made.joint_inclusion

    assert torch.autograd.gradcheck(values, scores)


@pytest.mark.parametrize("design", ELIMINATIONS)
def test_batches_of_rows_with_different_settled_units(design):
    pi = torch.tensor([SETTLED, [3 / 7] * 7, probabilities(7, 3).tolist()], dtype=torch.float64)
    made = design(3, probs=pi)
    x = subsets(7, 3)
    p = made.log_prob(x.unsqueeze(1)).exp()
    torch.testing.assert_close(
        p, torch.stack([design(3, probs=row).log_prob(x).exp() for row in pi], -1), rtol=1e-10, atol=0
    )
    torch.testing.assert_close(
        made.joint_inclusion, torch.stack([design(3, probs=row).joint_inclusion for row in pi])
    )
    mean = made.sample((20_000,), generator=torch.Generator().manual_seed(0)).mean(0)
    assert (mean - pi).abs().max() < 0.02


@pytest.mark.parametrize("design", ELIMINATIONS)
def test_many_draws_in_parts(design):
    pi = probabilities(300, 20)
    x = design(20, probs=pi).sample((20_000,), generator=torch.Generator().manual_seed(0))
    assert (x.sum(-1) == 20).all()
    z = (x.mean(0) - pi) / (pi * (1 - pi) / 20_000).sqrt()
    assert abs((z**2).mean() - 1) < 0.35
    assert design(20, probs=pi).sample((0,)).shape == (0, 300)


@pytest.mark.parametrize("design", ELIMINATIONS)
def test_gradients_beside_tiny_probabilities(design):
    """The inverse of a tiny π is within the range of float64, its square is not."""
    for k, values in (
        (3, [0.0, -410.0, -410.0, -410.0, -820.0, -820.0]),
        (2, [1e4, 1.0, 0.0, -1e4, 5.0, 1e3]),
        (2, [-1137.0, -379.0, -758.0, 0.0, -379.0, -758.0, -1137.0]),
        (1, [0.0, -645.0, -700.0, -711.0, -740.0]),
    ):
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        made = design(k, scores=x)
        log_p = made.log_prob(made.sample((5,), generator=torch.Generator().manual_seed(0)))
        for value in (log_p, made.joint_inclusion, made.covariance_matrix):
            assert value.isfinite().all()
            total = (value * torch.arange(1.0, value.numel() + 1).view_as(value)).sum()
            assert torch.autograd.grad(total, x, retain_graph=True)[0].isfinite().all()
    # Two of three that are alike, beside one that is certain: their scores push each other.
    x = torch.tensor([0.0, -410.0, -410.0, -410.0, -820.0], dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    (grad,) = torch.autograd.grad(design(3, scores=x).log_prob(chosen), x)
    expected = torch.tensor([0, 2 / 9, 2 / 9, -4 / 9, 0], dtype=torch.float64)
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-12)
