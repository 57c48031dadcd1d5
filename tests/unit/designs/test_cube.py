"""The cube method: exact π, exactly k, and balance."""

import pytest
import scipy.stats
import torch

import khot
from khot.designs import ConditionalPoisson, Cube, KHotDistribution, SimpleRandom
from strategies.design_examples import probabilities


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def variables(n, p, seed=0):
    return torch.rand(n, p, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "k", "p"), [(8, 3, 1), (12, 5, 3), (20, 8, 3), (6, 5, 10)])
def test_inclusion_probabilities_are_exact(n, k, p):
    pi, draws = probabilities(n, k), 8_000
    x = Cube(k, probs=pi, balance=variables(n, p)).sample((draws,), generator=generator())
    assert (x.sum(-1) == k).all()
    z = (x.mean(0) - pi) / (pi * (1 - pi) / draws).sqrt()
    assert z.abs().max() < scipy.stats.norm.isf(1e-4 / n)


@pytest.mark.slow
def test_totals_are_balanced():
    """Against designs with the same π and no balance; the sums are unbiased for all."""
    n, k = 200, 50
    pi, x = probabilities(n, k, spread=0.5), variables(n, 2)
    spread = {}
    for name, design in (
        ("cube", Cube(k, probs=pi, balance=x)),
        ("poisson", ConditionalPoisson(k, probs=pi)),
    ):
        totals = (design.sample((400,), generator=generator()) / pi) @ x
        assert ((totals.mean(0) - x.sum(0)).abs() < 4.5 * totals.std(0) / 20).all()
        spread[name] = (totals / x.sum(0)).std(0)
    assert (spread["cube"] < spread["poisson"] / 3).all()


def test_exact_balance_where_the_corners_allow_it():
    """Groups of even weight: strata by balance alone, since their indicators can be met exactly."""
    group = torch.arange(24) % 3
    indicators = torch.nn.functional.one_hot(group).double()
    x = Cube(12, probs=torch.full((24,), 0.5, dtype=torch.float64), balance=indicators).sample((300,))
    assert torch.equal(x @ indicators, torch.full((300, 3), 4.0, dtype=torch.float64))


def test_variables_are_dropped_from_the_last():
    """Landing keeps the first variable longest."""
    n, k = 60, 12
    pi, x = torch.full((n,), 0.2, dtype=torch.float64), variables(n, 6)
    draws = Cube(k, probs=pi, balance=x).sample((1500,), generator=generator())
    error = ((draws / pi) @ x / x.sum(0)).std(0)
    assert error[0] < error[-1] * 0.75


def test_batches_settled_units_and_rank():
    pi = torch.tensor(
        [[1.0, 0.5, 0.0, 0.25, 0.25, 0.0, 1.0], [3 / 7] * 7, probabilities(7, 3).tolist()],
        dtype=torch.float64,
    )
    x = variables(7, 2)
    for balance in (x, torch.cat([x, x], -1), torch.zeros(7, 2), pi.unsqueeze(-1), torch.zeros(7, 0)):
        design = Cube(3, probs=pi, balance=balance)
        draws = design.sample((3000,), generator=generator())
        assert (draws.sum(-1) == 3).all()
        assert (draws.mean(0) - pi).abs().max() < 0.05
        assert (draws[:, pi == 1] == 1).all()
        assert (draws[:, pi == 0] == 0).all()
    wide = Cube(3, probs=pi[1], balance=x).expand((2,))
    assert wide.sample((4,)).shape == (4, 2, 7)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_nothing_and_everything(n):
    for k in (0, n):
        design = Cube(k, scores=torch.zeros(n), balance=torch.ones(n, 1))
        assert (design.sample((3,)) == float(k > 0)).all()
        assert design.sample_indices((3,)).shape == (3, k)
    two = Cube(1, probs=torch.tensor([0.3, 0.7]), balance=torch.tensor([[1.0], [5.0]]))
    assert abs(two.sample((20_000,), generator=generator()).mean(0)[0] - 0.3) < 0.015


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_k_and_seeds(dtype):
    n = 100
    scores = torch.randn(3, n, generator=generator(), dtype=dtype) * torch.tensor([[0.01], [1.0], [8.0]])
    for k in (1, 30, 99):
        design = Cube(k, scores=scores.to(dtype), balance=variables(n, 4) * 1e6)
        x = design.sample((5,), generator=generator(1))
        assert x.dtype == dtype
        assert ((x == 0) | (x == 1)).all()
        assert (x.sum(-1) == k).all()
        assert torch.equal(x, design.sample((5,), generator=generator(1)))
        assert not torch.equal(x, design.sample((5,), generator=generator(2)))


def test_no_balance_is_random_pivotal_sampling():
    """One constraint, the sum: units duel in pairs, and for equal π all sets are equally likely."""
    x = Cube(2, probs=torch.full((5,), 0.4, dtype=torch.float64), balance=torch.zeros(5, 0))
    draws = x.sample((50_000,), generator=generator())
    sets = SimpleRandom(2, 5, dtype=torch.float64).enumerate_support()
    counts = (draws @ sets.T == 2).sum(0)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_arguments():
    pi = probabilities(5, 2)
    assert isinstance(Cube(2, probs=pi, balance=torch.ones(5, 1)), KHotDistribution)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'balance'"):
        Cube(2, probs=pi)
    with pytest.raises(
        ValueError, match=r"balance must be floating-point of shape \(…, 5, p\), got .* \(5,\)"
    ):
        Cube(2, probs=pi, balance=torch.ones(5))
    with pytest.raises(ValueError, match="Cube: balance must be finite"):
        Cube(2, probs=pi, balance=torch.full((5, 1), torch.inf))
    with pytest.raises(NotImplementedError, match="Cube: log_prob has no closed form"):
        Cube(2, probs=pi, balance=torch.ones(5, 1)).log_prob(pi.round())
    assert khot.designs.Cube.exact_inclusion
