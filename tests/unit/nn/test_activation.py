"""The activation that lets k units pass."""

import math

import pytest
import torch

import khot
from khot.nn import TopKActivation
from strategies.random_scores import scores

X = scores(5, 12, dtype=torch.float64)


@pytest.mark.parametrize("by", ["value", "magnitude"])
@pytest.mark.parametrize("dim", [-1, 0])
def test_the_largest_pass_unchanged(by, dim):
    y = TopKActivation(3, by=by, dim=dim)(X)
    ranked = X.abs() if by == "magnitude" else X
    cut = ranked.sort(dim, descending=True).values.narrow(dim, 2, 1)
    assert torch.equal(y, torch.where(ranked >= cut, X, 0))


def test_the_gradient_is_that_of_the_gated_product():
    leaf = X.clone().requires_grad_()
    up = scores(5, 12, dtype=torch.float64)
    (ours,) = torch.autograd.grad((TopKActivation(3, temperature=0.5)(leaf) * up).sum(), leaf)
    soft = khot.sigmoid_topk(leaf, 3, temperature=0.5)
    mask = khot.hard_topk(X, 3)
    expected = leaf * (mask + soft - soft.detach())
    (theirs,) = torch.autograd.grad((expected * up).sum(), leaf)
    torch.testing.assert_close(ours, theirs)
    assert (ours[mask == 0] != 0).any()


def test_soft_weights():
    y = TopKActivation(3, "laplace", hard=False, temperature=0.5)(X)
    torch.testing.assert_close(y, X * khot.laplace_topk(X, 3, temperature=0.5))


def test_infinite_and_masked_units():
    x = torch.tensor([math.inf, 1.0, -math.inf, 2.0, math.inf], requires_grad=True)
    mask = torch.tensor([True, True, True, True, False])
    y = TopKActivation(2)(x, mask)
    assert y.tolist() == [math.inf, 0, 0, 2, 0]
    y[3].backward()
    assert x.grad.isfinite().all()


def test_a_learned_budget():
    layer = TopKActivation(3, learn_k=True, k_max=6)
    layer(X.float()).sum().backward()
    assert layer.kappa.grad != 0


def test_wrong_settings():
    with pytest.raises(ValueError, match="by must be 'value' or 'magnitude', got 'size'"):
        TopKActivation(3, by="size")
    with pytest.raises(ValueError, match="k must satisfy"):
        TopKActivation(13)(X)
    assert "by='value'" in repr(TopKActivation(3))
