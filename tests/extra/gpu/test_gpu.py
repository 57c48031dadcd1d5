"""Tensors on a GPU get what tensors on the CPU get, by whichever way KHOT_TRITON chooses."""

import pytest
import torch

import khot
from khot import designs
from khot.kernels import cpu
from khot.relaxations import registry

OPERATORS = [khot.sigmoid_topk, khot.laplace_topk, khot.sparse_topk, khot.normal_topk]
SHAPES = [(3, 7), (64, 64), (8, 1000), (2, 5000), (1, 300_000), (200, 70_000)]  # the last but one is split


def scores(*shape):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_values_and_gradients(operator, shape):
    for temperature in (0.1, 1.0):
        results = []
        for device in ("cpu", "cuda"):
            x = scores(*shape).to(device).requires_grad_()
            tau = torch.tensor(temperature, device=device, requires_grad=True)
            y = operator(x, shape[-1] // 3, temperature=tau)
            results.append([y, *torch.autograd.grad(y, (x, tau), scores(*shape).flip(-1).to(device))])
        for mine, right in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(mine.cpu(), right, rtol=1e-4, atol=1e-4 if mine.dim() == 0 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("operator", OPERATORS)
def test_half_types_masks_and_budgets_of_their_own(operator, dtype):
    x, mask = scores(4, 50).to(dtype), scores(4, 50) > -1
    k = torch.tensor([0.0, 1.0, 7.5, 50.0])
    y = operator(x.cuda(), k.cuda(), mask=mask.cuda())
    torch.testing.assert_close(y.cpu(), operator(x, k, mask=mask), rtol=0, atol=1e-2)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hard_topk(shape):
    x = scores(*shape).round()  # ties
    assert torch.equal(khot.hard_topk(x.cuda(), shape[-1] // 3).cpu(), khot.hard_topk(x, shape[-1] // 3))


def test_compiled():
    x = scores(64, 64).cuda().requires_grad_()
    compiled = torch.compile(lambda x: khot.sigmoid_topk(x, 5).square().sum(), fullgraph=True)
    (mine,) = torch.autograd.grad(compiled(x), x)
    (eager,) = torch.autograd.grad(khot.sigmoid_topk(x, 5).square().sum(), x)
    torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-6)


def test_a_tournament():
    results = []
    for device in ("cpu", "cuda"):
        x = scores(4, 300).to(device).requires_grad_()
        y = khot.successive_halving_topk(x, 17, mask=scores(4, 300).flip(-1).to(device) > -1)
        results.append([y, *torch.autograd.grad(y, x, scores(4, 300).flip(-1).to(device))])
    for mine, right in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine.cpu(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 100), (1, 300_000)], ids=str)
@pytest.mark.parametrize("name", ["Systematic", "RandomSystematic", "TreePivotal", "RandomTreePivotal"])
def test_draws(name, shape):
    p = khot.sparse_topk(scores(*shape), 9).cuda()
    x = getattr(designs, name)(9, probs=p).sample((5,))
    assert (x.sum(-1) == 9).all()
    assert not x[:, p == 0].any()
    assert x[:, p == 1].all()


def test_the_same_uniform_variables_draw_the_same_units():
    draws, duels = (pytest.importorskip(f"khot.kernels.triton.{name}") for name in ("draws", "duels"))
    p = khot.sigmoid_topk(scores(3, 100), 9)
    u = torch.rand(50, 3, 127, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first = u[..., 0].contiguous()
    assert torch.equal(draws.systematic(p.cuda(), 9, first.cuda()).cpu(), cpu.systematic(p, 9, first))
    assert torch.equal(duels.pivotal(p.cuda(), 9, u.cuda()).cpu(), cpu.pivotal(p, 9, u))


def test_deterministic_mode():
    torch.use_deterministic_algorithms(True)
    try:
        for name in registry.names():
            x = scores(3, 20).cuda().requires_grad_()
            registry.get(name).weights(x, 4).square().sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
