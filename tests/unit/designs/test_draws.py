"""What is drawn, against what should be: counts of whole subsets, first moments, and exactly k ones."""

import itertools
import math

import pytest
import scipy.stats
import torch

import khot
from khot.designs import (
    ConditionalPoisson,
    RandomPivotal,
    RandomSystematic,
    RandomTreePivotal,
    SequentialPivotal,
    Systematic,
    TreePivotal,
)
from strategies.counts_of_draws import DRAWS, LEVEL, chi_square, generator
from strategies.design_examples import (
    ALL,
    APPROXIMATE,
    CLOSED,
    ELIMINATIONS,
    RANDOM_ORDERS,
    by_probs,
    by_scores,
    probabilities,
    subsets,
)
from strategies.quick_run import costly, in_turn

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("design", [*CLOSED, *ELIMINATIONS])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (7, 3), (7, 6), (8, 4), (10, 2)])
def test_counts_of_subsets(design, n, k):
    made = design(k, probs=probabilities(n, k))
    x = made.sample((DRAWS,), generator=generator())
    assert chi_square(x, subsets(n, k), made.log_prob(subsets(n, k)).exp()) > LEVEL


@pytest.mark.parametrize("design", [*CLOSED, *ELIMINATIONS])
def test_the_test_of_counts_bites(design):
    """Another design with the same π is found out, and so is another π."""
    pi = probabilities(7, 3)
    x = design(3, probs=pi).sample((DRAWS,), generator=generator())
    for other in [*CLOSED, *ELIMINATIONS]:
        p = other(3, probs=pi).log_prob(subsets(7, 3)).exp()
        assert (chi_square(x, subsets(7, 3), p) > LEVEL) == (other is design)
    near = design(3, probs=khot.sigmoid_topk(torch.logit(pi) + 0.1 * torch.arange(7), 3))
    assert chi_square(x, subsets(7, 3), near.log_prob(subsets(7, 3)).exp()) < LEVEL


def test_random_orders_mix_the_ordered_designs():
    """The exact law of the shuffled designs, as the mean over all orders."""
    pi = probabilities(5, 2)
    orders = torch.tensor(list(itertools.permutations(range(5))))
    x = subsets(5, 2)
    pairs = (
        (RandomSystematic, Systematic),
        (RandomTreePivotal, TreePivotal),
        (RandomPivotal, SequentialPivotal),
    )
    for shuffled, ordered in pairs:
        p = ordered(2, probs=pi[orders]).log_prob(x[:, orders]).exp().mean(1)
        drawn = shuffled(2, probs=pi).sample((DRAWS,), generator=generator())
        assert chi_square(drawn, x, p) > LEVEL


def test_random_tree_pivotal_is_near_the_maximum_of_entropy():
    pi = probabilities(7, 3)
    x = RandomTreePivotal(3, probs=pi).sample((DRAWS,), generator=generator())
    counts = x.unique(dim=0, return_counts=True)[1] / DRAWS
    largest = ConditionalPoisson(3, probs=pi).entropy()
    assert 0 < largest - torch.special.entr(counts).sum() < 0.1


@pytest.mark.parametrize("design", [*CLOSED, *ELIMINATIONS])
@pytest.mark.parametrize(("n", "k"), [(7, 3), (40, 12)])
def test_first_moments(design, n, k):
    made = design(k, probs=probabilities(n, k))
    x = made.sample((DRAWS,), generator=generator(1)).double()
    d = x.mean(0) - made.mean
    cov = made.covariance_matrix
    values, vectors = torch.linalg.eigh(cov)
    kept = values > 1e-9
    statistic = DRAWS * ((vectors.T @ d)[kept] ** 2 / values[kept]).sum()
    assert (vectors.T @ d)[~kept].abs().max() < 1e-9
    assert scipy.stats.chi2.sf(statistic, int(kept.sum())) > LEVEL


@pytest.mark.parametrize("design", RANDOM_ORDERS)
def test_first_moments_of_random_orders(design):
    pi = probabilities(40, 12)
    x = design(12, probs=pi).sample((DRAWS,), generator=generator(1)).double()
    z = (x.mean(0) - pi) / (pi * (1 - pi) / DRAWS).sqrt()
    assert z.abs().max() < scipy.stats.norm.isf(LEVEL / 80)


@pytest.mark.parametrize(
    ("design", "k", "draws"),
    [
        *((design, 3, 100_000) for design in (TreePivotal, ConditionalPoisson)),
        (TreePivotal, 900, 4_000),
        costly(ConditionalPoisson, 900, 4_000),
    ],
)
def test_many_units_by_paths_and_by_levels(design, k, draws):
    """Both ways down a tree, and both tables: k few and k half."""
    n = 2000
    pi = probabilities(n, k, spread=1.0)
    x = design(k, probs=pi).sample_indices((draws,), generator=generator(2))
    assert (x.diff(dim=-1) > 0).all()
    share = torch.bincount(x.flatten(), minlength=n) / draws
    z = (share - pi) / (pi * (1 - pi) / draws).sqrt()
    # 2000 correlated and, for k = 3, discrete variables: a bound on their mean square is enough.
    assert abs((z**2).mean() - 1) < 0.15


@pytest.mark.parametrize("design", CLOSED)
def test_entropy_is_the_mean_of_minus_log_prob(design):
    made = design(9, probs=probabilities(30, 9))
    values = -made.log_prob(made.sample((20_000,), generator=generator(3)))
    assert abs(values.mean() - made.entropy()) < 5 * values.std() / math.sqrt(20_000) + 1e-12


def exactly_k(design, n, k, dtype):
    x = torch.randn(3, n, generator=generator()) * torch.tensor([[0.01], [1.0], [8.0]])
    x[:, : 3 * n // 10] = x[:, :1]  # ties
    made = by_scores(design, k, x.to(dtype))
    draws = made.sample((4,), generator=generator())
    assert draws.dtype == dtype
    assert ((draws == 0) | (draws == 1)).all()
    assert (draws.float().sum(-1) == k).all()
    indices = made.sample_indices((4,), generator=generator())
    assert indices.shape == (4, 3, k)
    assert (indices.diff(dim=-1) > 0).all()


@pytest.mark.parametrize(("design", "k", "dtype"), in_turn(ALL, [1, 7, 99, 199], DTYPES))
def test_exactly_k(design, k, dtype):
    exactly_k(design, 200, k, dtype)


@pytest.mark.full
@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("k", [1, 7, 499, 999])
@pytest.mark.parametrize("dtype", DTYPES)
def test_exactly_k_of_a_thousand(design, k, dtype):
    exactly_k(design, 1000, k, dtype)


@pytest.mark.parametrize("design", [Systematic, TreePivotal, RandomSystematic, RandomTreePivotal])
@pytest.mark.parametrize("k", [costly(1), 1000, costly(500_000), 999_999])
def test_exactly_k_of_a_million(design, k):
    x = 3 * torch.randn(1_000_000, generator=generator())
    pi = khot.sigmoid_topk(x, k)
    for seed in range(2):
        draw = by_probs(design, k, pi).sample(generator=generator(seed))
        assert draw.dtype == torch.float32
        assert draw.sum(dtype=torch.float64) == k
        assert ((draw == 0) | (draw == 1)).all()
        assert (draw[pi == 0] == 0).all()
        assert (draw[pi == 1] == 1).all()


def test_conditional_poisson_of_a_million():
    x = torch.randn(1_000_000, generator=generator())
    indices = ConditionalPoisson(10, logits=x).sample_indices((1024,), generator=generator())
    assert indices.shape == (1024, 10)
    assert (indices.diff(dim=-1) > 0).all()
    top = (x[indices] > x.median()).float().mean()
    assert abs(top - x.exp()[x > x.median()].sum() / x.exp().sum()) < 0.02  # k ≪ n: nearly k draws by softmax


@pytest.mark.parametrize("design", ALL)
def test_the_same_seed_gives_the_same_draw(design):
    made = by_probs(design, 5, probabilities(20, 5))
    one, two = (made.sample((50,), generator=generator(7)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, made.sample((50,), generator=generator(8)))
    torch.manual_seed(3)
    one = made.sample((50,))
    torch.manual_seed(3)
    assert torch.equal(one, made.sample((50,)))
    state = torch.get_rng_state()
    made.sample((2,), generator=generator(1))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("design", ALL)
def test_shapes(design):
    pi = torch.stack([probabilities(6, 2, seed) for seed in range(4)]).view(2, 2, 6)
    made = by_probs(design, 2, pi)
    assert (made.batch_shape, made.event_shape) == ((2, 2), (6,))
    assert made.sample().shape == (2, 2, 6)
    assert made.sample((3, 1)).shape == (3, 1, 2, 2, 6)
    assert made.sample_indices((3, 1)).shape == (3, 1, 2, 2, 2)
    assert made.sample((0,)).shape == (0, 2, 2, 6)
    wide = by_probs(design, 2, pi[0, 0]).expand((5, 2))
    assert wide.sample((3,)).shape == (3, 5, 2, 6)
    assert wide.mean.shape == (5, 2, 6)
    assert by_probs(design, 2, pi[:0]).sample((3,)).shape == (3, 0, 2, 6)
    # Each row of a batch is its own design.
    draws = made.sample((20_000,), generator=generator()).double().mean(0)
    assert (draws - (made.mean if design in APPROXIMATE else pi)).abs().max() < 0.02
