"""sparse_topk of norms between 1 and 2 takes the kernels, eager and compiled."""

import pytest
import torch

import khot
from khot.kernels import cpu

pytestmark = pytest.mark.usefixtures("library")


def scores(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("norm", [1.01, 1.1, 4 / 3, 1.5, 1.7])
def test_the_kernels_are_called_both_ways(norm, monkeypatch):
    called = []
    for name in ("gated_topk", "gate_jacobian"):
        kernel = getattr(cpu, name)
        monkeypatch.setattr(cpu, name, lambda *a, _k=kernel, _n=name, **o: called.append(_n) or _k(*a, **o))
    x = scores((3, 20)).requires_grad_()
    khot.sparse_topk(x, 4, norm=norm)[..., 0].sum().backward()
    assert called == ["gated_topk", "gate_jacobian"]


@pytest.mark.full
def test_compiled_equals_eager_for_each_norm():
    x, g = scores((3, 50), torch.float32).requires_grad_(), scores((3, 50), torch.float32, seed=1)
    mask = scores((3, 50), seed=2) < 1

    def call(x, norm):
        return khot.sparse_topk(x, 7, norm=norm, temperature=0.5, mask=mask)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for norm in (1.5, 1.7, 2.0, 4 / 3):
        y, right = compiled(x, norm), call(x, norm)
        assert torch.equal(y, right)
        assert torch.equal(torch.autograd.grad(y, x, g)[0], torch.autograd.grad(right, x, g)[0])
