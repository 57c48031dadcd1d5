"""The fused selection of a router: the same with and without the kernel, and its higher derivatives."""

import pytest
import torch

from khot.apps.moe import _softmax_topk
from khot.apps.moe._softmax_topk import softmax_topk


@pytest.mark.parametrize("renormalise", [False, True])
def test_with_and_without_the_kernel(renormalise, monkeypatch):
    x = torch.randn(20, 12, requires_grad=True)
    g = torch.randn(20, 3)
    results = []
    for usable in (_softmax_topk.cpu.usable, lambda *_: False):
        monkeypatch.setattr(_softmax_topk.cpu, "usable", usable)
        weights, indices = softmax_topk(x, 3, renormalise)
        results.append((weights, indices, *torch.autograd.grad(weights, x, g)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("renormalise", [False, True])
def test_derivatives_of_all_orders(renormalise):
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    function = lambda x: softmax_topk(x, 2, renormalise)[0]  # noqa: E731
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


def test_no_graph_where_none_is_wanted_and_many_experts_for_a_token():
    x = torch.randn(5, 40, requires_grad=True)
    with torch.no_grad():
        assert not softmax_topk(x, 3, False)[0].requires_grad
    weights, indices = softmax_topk(x, 30, False)  # more than the kernel takes
    torch.testing.assert_close(weights, x.softmax(-1).gather(1, indices))
    assert torch.autograd.grad(indices.double().sum() * 0 + weights.sum(), x)[0].shape == (5, 40)
