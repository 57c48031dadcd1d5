"""Systematic and tree pivotal draws by Triton's interpreter: those of the CPU, unit by unit."""

import pytest
import torch

from khot.kernels import cpu
from khot.kernels.triton import draws, duels
from strategies.seeded import randn


def probabilities(n, k, dtype=torch.float32):
    """Zeros and ones among them."""
    return cpu.gated_topk("sparse", 2 * randn(3, n).to(dtype), float(k), 1.0)[0]


def uniforms(*shape):
    u = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u[0] = 0.0
    return u


CASES = [(40, 7), (33, 0), (33, 33), (1, 1)]


@pytest.mark.parametrize(("n", "k"), CASES)
@pytest.mark.usefixtures("programs")
def test_systematic(n, k):
    p, u = probabilities(n, k), uniforms(3, 3)
    x = draws.systematic(p, k, u)
    assert (x.sum(-1) == k).all()
    assert torch.equal(x, cpu.systematic(p, k, u))


@pytest.mark.usefixtures("programs")
def test_where_the_sums_are_not_quite_k():
    """What the rounding of float32 took is given back; the last whole number is passed exactly once."""
    p = torch.full((3, 49), 7 / 49)
    p[1] *= 1 + 3e-7
    p[2] *= 1 - 3e-7
    u = uniforms(2, 3)
    u[1] = 1 - 2**-53
    assert torch.equal(draws.systematic(p, 7, u), cpu.systematic(p, 7, u))


@pytest.mark.parametrize(("n", "k"), CASES)
@pytest.mark.usefixtures("programs")
def test_tree_pivotal(n, k):
    p, u = probabilities(n, k), uniforms(3, 3, (1 << (n - 1).bit_length()) - 1)
    x = duels.pivotal(p, k, u)
    assert (x.sum(-1) == k).all()
    assert torch.equal(x, cpu.pivotal(p, k, u))


@pytest.mark.parametrize(("module", "design"), [(draws, "systematic"), (duels, "pivotal")])
def test_in_an_order(module, design):
    p, u = probabilities(21, 6), uniforms(2, 3, *([31] if design == "pivotal" else []))
    order = randn(2, 3, 21, seed=3).argsort(-1)
    assert torch.equal(getattr(module, design)(p, 6, u, order), getattr(cpu, design)(p, 6, u, order))


def test_float64_and_a_large_k():
    """From k = 2048 on sums have fewer bits behind the point."""
    p = probabilities(4000, 2500, torch.float64)[:1]
    x = draws.systematic(p, 2500, uniforms(1, 1))
    assert x.dtype == torch.float64
    assert torch.equal(x, cpu.systematic(p, 2500, uniforms(1, 1)))


def test_a_long_row():
    p, u = probabilities(70_000, 900)[:1], uniforms(1, 1)
    u[0] = 0.3
    assert torch.equal(draws.systematic(p, 900, u), cpu.systematic(p, 900, u))
