"""gumbel_topk against the Plackett–Luce probabilities of all subsets. Seeds are fixed."""

import itertools
import math

import pytest
import torch
from scipy.stats import chi2

import khot


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def subset_probabilities(x, k):
    """Of each set of k entries, the sum over the orders in which it can be drawn."""
    weights = x.double().exp().tolist()

    def of_order(order):
        left, probability = sum(weights), 1.0
        for i in order:
            probability *= weights[i] / left
            left -= weights[i]
        return probability

    return {
        subset: sum(of_order(order) for order in itertools.permutations(subset))
        for subset in itertools.combinations(range(len(weights)), k)
    }


@pytest.mark.parametrize(
    ("x", "k"),
    [
        ([0.0, 0.0, 0.0], 1),
        ([1.0, 0.0, -1.0, 0.5], 1),
        ([1.0, 0.0, -1.0, 0.5], 2),
        ([0.3, -0.7, 1.2, 0.1, -0.2], 2),
        ([0.3, -0.7, 1.2, 0.1, -0.2], 4),
    ],
)
def test_samples_have_the_plackett_luce_law(x, k):
    """Pearson's statistic stays below its quantile at 1 − 1e-6."""
    x, samples = torch.tensor(x), 40_000
    y = khot.gumbel_topk(x.expand(samples, -1), k, hard=True, generator=seeded(k))
    assert set(y.unique().tolist()) <= {0.0, 1.0}
    statistic, truth = 0.0, subset_probabilities(x, k)
    for subset, probability in truth.items():
        expected = samples * probability
        found = y[:, list(subset)].all(-1).sum().item()
        statistic += (found - expected) ** 2 / expected
    assert sum(truth.values()) == pytest.approx(1)
    assert statistic <= chi2.ppf(1 - 1e-6, len(truth) - 1)


def test_inclusion_probabilities_are_not_k_times_softmax():
    x, samples = torch.tensor([2.0, 0.0, 0.0, 0.0]), 40_000
    y = khot.gumbel_topk(x.expand(samples, -1), 2, hard=True, generator=seeded())
    truth = sum(p for subset, p in subset_probabilities(x, 2).items() if 0 in subset)
    assert abs(y[:, 0].mean().item() - truth) <= 5 * math.sqrt(0.25 / samples)
    assert (2 * torch.softmax(x, -1))[0] > 1.4 > 1 > truth


def test_the_relaxed_sample_is_sigmoid_top_k_of_one_noise():
    """The same noise for every temperature and dtype: the limit is the exact sample."""
    x = torch.randn(50, 6, generator=seeded(1), dtype=torch.float64)
    sample = khot.gumbel_topk(x, 2, hard=True, generator=seeded(2))
    torch.testing.assert_close(khot.gumbel_topk(x, 2, temperature=1e-9, generator=seeded(2)), sample)
    assert not torch.equal(sample, khot.hard_topk(x, 2))
    warm = khot.gumbel_topk(x, 2, temperature=0.5, generator=seeded(2))
    half = khot.gumbel_topk(x.float(), 2, temperature=0.5, generator=seeded(2))
    torch.testing.assert_close(half, warm.float(), atol=1e-5, rtol=0)
    # Scores recovered from the weights differ from x by Gumbel noise: its mean is Euler's constant 0.577…,
    # its variance π²/6; differences of two have the logistic variance π²/3.
    noise = khot.inverse_sigmoid_topk(warm, temperature=0.5) - x
    pairs = noise[:, ::2] - noise[:, 1::2]
    assert abs(pairs.var().item() - math.pi**2 / 3) <= 5 * math.pi**2 / 3 * math.sqrt(3.2 / pairs.numel())


def test_the_gradient_is_that_of_the_relaxed_sample():
    x = torch.randn(3, 5, generator=seeded(3), dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def relaxed(x, tau):
        return khot.gumbel_topk(x, 2, temperature=tau, generator=seeded(4))

    assert torch.autograd.gradcheck(relaxed, (x, tau))
    assert torch.autograd.gradgradcheck(relaxed, (x, tau))
    exact = khot.gumbel_topk(x, 2, temperature=tau, hard=True, generator=seeded(4))
    g = torch.randn(3, 5, generator=seeded(5), dtype=torch.float64)
    for mine, expected in zip(
        torch.autograd.grad(exact, (x, tau), g),
        torch.autograd.grad(relaxed(x, tau), (x, tau), g),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected)


def test_of_more_than_k_at_infinity_k_are_drawn_at_random():
    inf = math.inf
    x = torch.tensor([inf, 5.0, inf, inf, -inf]).expand(6_000, 5)
    y = khot.gumbel_topk(x, 2, hard=True, generator=seeded(6))
    assert (y.sum(-1) == 2).all()
    assert not y[:, [1, 4]].any()
    assert (y[:, [0, 2, 3]].mean(0) - 2 / 3).abs().max() <= 5 * math.sqrt(2 / 9 / 6_000)
    fewer = khot.gumbel_topk(x, 4, hard=True, generator=seeded(6))
    assert torch.equal(fewer, torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]).expand(6_000, 5))


def test_a_budget_per_row_a_mask_and_any_dim():
    x = torch.randn(4, 6, generator=seeded(7))
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 2] = False
    k = torch.tensor([0, 1, 3, 6])
    y = khot.gumbel_topk(x, k, mask=mask, hard=True, generator=seeded(8))
    assert y.sum(-1).tolist() == [0, 1, 3, 5]
    assert not y[:, 2].any()
    columns = khot.gumbel_topk(x.t(), k, mask=mask.t(), dim=0, hard=True, generator=seeded(8))
    assert torch.equal(columns, y.t())


def test_torch_seeds_the_default_generator():
    x = torch.zeros(20, 6)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        first, second = khot.gumbel_topk(x, 2, hard=True), khot.gumbel_topk(x, 2, hard=True)
        torch.manual_seed(9)
        assert torch.equal(khot.gumbel_topk(x, 2, hard=True), first)
    assert not torch.equal(first, second)


def test_it_runs_under_vmap_and_compile():
    x = torch.zeros(200, 4)
    with torch.random.fork_rng():
        torch.manual_seed(10)
        draw = torch.func.vmap(lambda row: khot.gumbel_topk(row, 1, hard=True), randomness="different")
        y = draw(x)
        compiled = torch.compile(
            lambda x: khot.gumbel_topk(x, 1, hard=True), fullgraph=True, backend="aot_eager"
        )(x)
    for sample in (y, compiled):
        assert (sample.sum(-1) == 1).all()
        assert (sample.sum(0) > 20).all(), "rows do not have noise of their own"
