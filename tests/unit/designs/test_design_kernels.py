"""The compiled draws and the portable ones: the same generator gives the same units."""

import pytest
import torch

import khot
from khot.designs import ConditionalPoisson, RandomSystematic, RandomTreePivotal, Systematic, TreePivotal
from khot.designs.pivotal._duels import draw_all, duels, pivotal_tree, uniforms
from khot.kernels import cpu
from strategies.design_examples import probabilities
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("library")

COMPILED = [Systematic, TreePivotal, ConditionalPoisson, RandomSystematic, RandomTreePivotal]


def both(monkeypatch, call):
    compiled = call()
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "usable", lambda *tensors: False)
        return compiled, call()


SIZES = [(1, 1), (2, 1), (3, 2), (17, 5), (100, 99), (1000, 300), (1025, 1), (3000, 70)]


def is_long(design, size, dtype):
    return design is ConditionalPoisson and size == (3000, 70)


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
    for design in (Systematic, TreePivotal, RandomSystematic, RandomTreePivotal):
        x = design(k, probs=pi).sample((50,), torch.Generator().manual_seed(0))
        assert (x.sum(-1) == k).all()
        assert (x[:, pi == 1] == 1).all()
        assert (x[:, pi == 0] == 0).all()


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
