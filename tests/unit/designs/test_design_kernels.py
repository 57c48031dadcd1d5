"""The compiled draws and the portable ones: the same generator gives the same units."""

import itertools

import pytest
import scipy.stats
import torch

import khot
from khot.designs import (
    Brewer,
    ConditionalPoisson,
    Cube,
    Midzuno,
    RandomSystematic,
    RandomTreePivotal,
    Sampford,
    Systematic,
    Tille,
    TreePivotal,
)
from khot.designs.pivotal._duels import draw_all, duels, pivotal_tree, uniforms
from khot.kernels import cpu
from strategies.design_examples import probabilities
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("library")

COMPILED = [
    Systematic,
    TreePivotal,
    ConditionalPoisson,
    RandomSystematic,
    RandomTreePivotal,
    Sampford,
    Brewer,
    Tille,
    Midzuno,
]


def both(monkeypatch, call):
    compiled = call()
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "usable", lambda *tensors: False)
        return compiled, call()


SIZES = [(1, 1), (2, 1), (3, 2), (17, 5), (100, 99), (1000, 300), (1025, 1), (3000, 70)]


def is_long(design, size, dtype):
    return design in (ConditionalPoisson, Sampford, Tille) and size == (3000, 70)


@pytest.mark.parametrize(
    ("design", "size", "dtype"),
    in_turn(COMPILED, SIZES, [torch.float32, torch.float64], left_out=is_long),
)
def test_the_same_draws(monkeypatch, design, size, dtype):
    n, k = size
    pi = torch.stack([probabilities(n, k, seed, spread) for seed, spread in ((0, 1.0), (1, 4.0))]).to(dtype)
    if design in (ConditionalPoisson, TreePivotal):  # paths or tables: other ways to draw than the kernel's
        call = lambda seed: design(k, probs=pi).sample_indices((3,), torch.Generator().manual_seed(seed))  # noqa: E731
    else:
        call = lambda seed: design(k, probs=pi).sample((3,), torch.Generator().manual_seed(seed))  # noqa: E731
    for seed in range(3):
        compiled, portable = both(monkeypatch, lambda seed=seed: call(seed))
        assert torch.equal(compiled, portable)


@pytest.mark.parametrize(
    ("n", "k"), [(2, 1), (3, 1), (100, 40), (1024, 500), (1025, 700), (5000, 4999), (70_000, 9)]
)
def test_the_tree_in_blocks_is_the_whole_tree(n, k):
    """The kernel against draws level by level, from the same uniform variables."""
    pi = probabilities(n, k)
    pi = torch.stack([pi, pi.flip(-1)])
    u = uniforms(torch.Size((3, 2)), n, pi.device, torch.Generator().manual_seed(0))
    x = cpu.pivotal(pi, k, u)
    tree = pivotal_tree(khot.designs.Systematic(k, probs=pi)._inclusion)
    assert torch.equal(x.bool(), draw_all(tree, k, torch.Size((3, 2)), duels(u))[..., :n])
    order = torch.argsort(torch.rand(3, 2, n, generator=torch.Generator().manual_seed(1)), -1)
    shuffled = cpu.pivotal(pi, k, u, order).gather(-1, order)
    other = pivotal_tree(pi.expand(3, 2, n).gather(-1, order))
    assert torch.equal(shuffled.bool(), draw_all(other, k, torch.Size((3, 2)), duels(u))[..., :n])


@pytest.mark.parametrize("settled", [0, 3])
def test_certain_and_impossible_units(settled):
    pi = torch.full((2000,), 0.5)
    pi[5 : 5 + settled] = 1
    pi[100 : 100 + settled] = 0
    k = round(float(pi.sum()))
    for design in (Systematic, TreePivotal, RandomSystematic, RandomTreePivotal, Sampford, Brewer, Tille):
        x = design(k, probs=pi).sample((50,), torch.Generator().manual_seed(0))
        assert (x.sum(-1) == k).all()
        assert (x[:, pi == 1] == 1).all()
        assert (x[:, pi == 0] == 0).all()


@pytest.mark.parametrize("design", [Brewer, Tille, Midzuno, Sampford])
def test_certain_and_impossible_units_are_the_same_draws(monkeypatch, design):
    pi = torch.tensor([[0.5, 1.0, 0.25, 0.0, 0.25, 1.0], [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    compiled, portable = both(
        monkeypatch, lambda: design(3, probs=pi).sample((200,), torch.Generator().manual_seed(0))
    )
    assert torch.equal(compiled, portable)
    assert (compiled[:, pi == 1] == 1).all()
    assert (compiled[:, pi == 0] == 0).all()


@pytest.mark.parametrize("variables", [0, 1, 3])
def test_the_same_cube(monkeypatch, variables):
    pi = torch.stack([probabilities(30, 9, seed) for seed in range(2)])
    pi[1, :3] = torch.tensor([0.0, 1.0, 1.0])
    pi[1, 3:] *= (9 - 2) / pi[1, 3:].sum()
    x = torch.rand(30, variables, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compiled, portable = both(
        monkeypatch,
        lambda: Cube(9, probs=pi, balance=x).sample((20,), torch.Generator().manual_seed(0)),
    )
    assert torch.equal(compiled, portable)


def test_long_rows_in_random_order_have_the_law_of_all_orders():
    """The order made of random bytes: every set as often as in the mean over all permutations."""
    n, k, draws = 5, 2, 200_000
    pi = torch.tensor([0.9, 0.1, 0.6, 0.3, 0.1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    random_bytes = torch.randint(0, 256, (draws, 5 * n), dtype=torch.uint8, generator=generator)
    u = torch.rand(draws, dtype=torch.float64, generator=generator)
    x = cpu.shuffled_systematic(pi.expand(draws, n).contiguous(), k, u, random_bytes)
    assert (x.sum(-1) == k).all()
    sets = Systematic(k, probs=pi).enumerate_support()
    chance = torch.zeros(len(sets), dtype=torch.float64)
    orders = list(itertools.permutations(range(n)))
    for order in orders:
        chance += Systematic(k, probs=pi[list(order)]).log_prob(sets[:, list(order)]).exp() / len(orders)
    counts = (x @ sets.T == k).double().sum(0)
    possible = chance > 0
    assert counts[~possible].sum() == 0
    expected = chance[possible] * draws
    statistic = ((counts[possible] - expected).square() / expected).sum().item()
    assert statistic < scipy.stats.chi2.isf(1e-4, int(possible.sum()) - 1)


def test_long_rows_in_random_order():
    n = 40_000
    pi = probabilities(n, 1000).float()
    pi[7], pi[8] = 1.0, 0.0
    pi[9:] *= (999 - float(pi[:7].sum())) / float(pi[9:].sum())
    x = RandomSystematic(1000, probs=pi).sample((3,), torch.Generator().manual_seed(0))
    assert (x.sum(-1) == 1000).all()
    assert (x[:, 7] == 1).all()
    assert (x[:, 8] == 0).all()
    again = RandomSystematic(1000, probs=pi).sample((3,), torch.Generator().manual_seed(0))
    assert torch.equal(x, again)
    assert not torch.equal(x[0], x[1])


def test_the_fixed_point_sums_are_fine_enough():
    """Probabilities that float32 sums would lose: small ones after many others."""
    n = 70_000
    pi = torch.full((n,), 0.5, dtype=torch.float64)
    pi[-1000:] = 2e-3  # half of what separates neighbours of float32 there
    k = int(pi.sum())
    pi[0] += k - pi.sum()
    u = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1]
    share = torch.zeros(1000, dtype=torch.float64)
    for part in u.split(100):
        share += cpu.systematic(pi, k, part)[:, -1000:].sum(0)
    torch.testing.assert_close(share / 1000, pi[-1000:], rtol=0, atol=1.2e-3)


def test_threads_make_no_difference():
    before = torch.get_num_threads()
    x = torch.randn(20, 1100, generator=torch.Generator().manual_seed(0))
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            made = (design(30, scores=x) for design in COMPILED)
            found.append(torch.stack([d.sample((2,), torch.Generator().manual_seed(0)) for d in made]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
