"""The kernel of a router against a stable sort and a softmax in float64."""

import math

import pytest
import torch

from khot.kernels import cpu, loader
from strategies.instruction_sets import every_instruction_set

pytestmark = pytest.mark.usefixtures("library")


def truth(x, k, renormalise):
    """Order, weights and their graph."""
    y = x.double().requires_grad_()
    order = x.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    chosen = y.softmax(-1).gather(1, order)
    return order, chosen / chosen.sum(-1, keepdim=True) if renormalise else chosen, y


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "n", "k"),
    [(1, 1, 1), (7, 3, 3), (50, 8, 2), (17, 17, 5), (33, 64, 8), (9, 100, 16), (0, 8, 2), (4096, 16, 4)],
)
def test_as_a_sort_and_a_softmax(rows, n, k, dtype, renormalise):
    generator = torch.Generator().manual_seed(n)
    x = (2 * torch.randn(rows, n, generator=generator)).round(decimals=1).to(dtype)  # with ties
    order, wanted, y = truth(x, k, renormalise)
    indices, weights, sums = cpu.router_topk(x, k, renormalise)
    assert torch.equal(indices, order)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(weights.double(), wanted.detach(), rtol=10 * eps, atol=eps)
    g = torch.randn(rows, k, generator=generator)
    (gradient,) = torch.autograd.grad(wanted, y, g.double())
    found = cpu.router_gradient(x, indices, weights, sums, g.to(dtype), renormalise)
    torch.testing.assert_close(found.double(), gradient, rtol=100 * eps, atol=20 * eps)


@pytest.mark.parametrize("renormalise", [False, True])
def test_odd_rows(renormalise):
    inf, nan = math.inf, math.nan
    x = torch.tensor(
        [[nan, 1, inf, -inf], [-inf] * 4, [1, -inf, -inf, 2], [3e38, -3e38, 0, 3e38], [-0.0, 0, 0, -1]]
    )
    indices, weights, _ = cpu.router_topk(x, 3, renormalise)
    assert indices.tolist() == [[0, 2, 1], [0, 1, 2], [3, 0, 1], [0, 3, 2], [0, 1, 2]]
    assert weights[:2].isnan().all()
    wanted = x[2:].double().softmax(-1).gather(1, indices[2:])
    if renormalise:
        wanted /= wanted.sum(-1, keepdim=True)
    torch.testing.assert_close(weights[2:].double(), wanted, rtol=1e-6, atol=1e-7)


def test_views_and_threads():
    x = torch.randn(64, 300).T[:, ::2]
    plain = cpu.router_topk(x.contiguous(), 4, False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for a, b in zip(cpu.router_topk(x, 4, False), plain, strict=True):
            assert torch.equal(a, b)
    finally:
        torch.set_num_threads(before)


def test_refusals():
    with pytest.raises(TypeError, match="x must be float32 or float64"):
        cpu.router_topk(torch.zeros(2, 4, dtype=torch.float16), 2, False)
    with pytest.raises(ValueError, match="k must be from 1 to 16, got 17"):
        cpu.router_topk(torch.zeros(2, 40), 17, False)


@every_instruction_set
def test_every_instruction_set(isa, run_python):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    code = """
import torch
from khot.kernels import cpu, loader
torch.manual_seed(0)
x, g = torch.randn(100, 37), torch.randn(100, 6)
i, w, s = cpu.router_topk(x, 6, False)
o = x.sort(dim=-1, descending=True, stable=True).indices[:, :6]
p = x.double().softmax(-1)
assert torch.equal(i, o) and (w - p.gather(1, o)).abs().max() < 1e-6
d = cpu.router_gradient(x, i, w, s, g, False)
wg = torch.zeros(100, 37).scatter(1, o, w * g)
assert (d - wg + p * wg.sum(-1, keepdim=True)).abs().max() < 1e-6
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
