"""Successive softmax against its definition in rational-like precision, draw by draw."""

import numpy as np
import pytest
import torch

import khot
from khot import sparse_topk, successive_softmax_topk, topk
from khot.relaxations.rows.successive_softmax import successive_softmax_matrix
from strategies.random_scores import scores


def draws(x, k, temperature):
    alpha = np.asarray(x, np.longdouble)
    rows = []
    for _ in range(k):
        p = np.exp((alpha - alpha.max()) / np.longdouble(temperature))
        p /= p.sum()
        rows.append(p)
        alpha = alpha + np.log1p(-p)
    return np.stack(rows).astype(np.float64)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (9, 4), (50, 10)])
def test_the_definition(temperature, n, k):
    x = scores(3, n)
    expected = np.stack([draws(row.numpy(), k, temperature) for row in x])
    rows = successive_softmax_matrix(x, k, temperature=temperature)
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-10, atol=1e-13)
    weights = successive_softmax_topk(x, k, temperature=temperature)
    np.testing.assert_allclose(weights.numpy(), expected.sum(1), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_minus_a_probability_that_rounds_to_one(dtype):
    # e^{-60} is lost beside 1 in both dtypes: log1p(−p) would be −inf. In closed form, at temperature 1, α₁
    # becomes log Σ of the others, so the second draw is (2, 1, 1)/4 for two equal others.
    x = torch.tensor([60.0, 0.0, 0.0], dtype=dtype, requires_grad=True)
    rows = successive_softmax_matrix(x, 2)
    torch.testing.assert_close(rows[1], torch.tensor([0.5, 0.25, 0.25], dtype=dtype))
    (grad,) = torch.autograd.grad(rows[1, 0], x)
    # p₂ = u/(u + b + c) with u = a(b + c)/(a + b + c) → b + c: ½ whatever they are.
    torch.testing.assert_close(grad, torch.zeros(3, dtype=dtype), atol=1e-6, rtol=0)


def test_weights_exceed_one_unless_capped():
    x = torch.tensor([3.0, 0.0, 0.0, 0.0])
    plain, capped = (successive_softmax_topk(x, 2, capped=c) for c in (False, True))
    assert plain.max() > 1.3
    assert capped.max() <= 1
    torch.testing.assert_close(capped.sum(), torch.tensor(2.0))
    torch.testing.assert_close(capped, sparse_topk(plain, 2))
    torch.testing.assert_close(capped, topk(x, 2, "successive_softmax", capped=True))
    hard = successive_softmax_topk(x, 2, capped=True, hard=True)
    assert hard.tolist() == [1, 1, 0, 0]


def test_no_budget_still_has_a_gradient():
    x = scores(2, 6).requires_grad_()
    y = successive_softmax_topk(x, 0)
    assert y.tolist() == torch.autograd.grad(y.sum(), x)[0].tolist() == [[0.0] * 6] * 2


def test_derivatives():
    x, tau = scores(2, 6).requires_grad_(), torch.tensor([0.7, 2.0], dtype=torch.float64, requires_grad=True)

    def call(x, tau):
        return successive_softmax_topk(x, 3, temperature=tau)

    assert torch.autograd.gradcheck(call, (x, tau), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, tau))


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_score_far_above_does_not_cost_the_others_their_digits(temperature):
    """At temperature 1 it is drawn again with the share of all others together, which is their logsumexp."""
    found = []
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([1.0, 2.0, 1e6, 3.0, 0.5], dtype=dtype, requires_grad=True)
        y = khot.successive_softmax_topk(x, 3, temperature=temperature)
        (grad,) = torch.autograd.grad(y @ torch.tensor([1.0, -1.0, 2.0, 0.5, 3.0], dtype=dtype), x)
        found.append((y.detach().double(), grad.double()))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_tensor", [False, True])  # a temperature for which there is no kernel, too
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_between_ties_stop_at_a_limit(dtype, by_tensor):
    """Each of the 82 draws before the last multiplies slopes by 1e9."""
    x = scores(3, 160).round().to(dtype).requires_grad_()
    temperature = torch.tensor(1e-9, dtype=dtype) if by_tensor else 1e-9
    y = successive_softmax_topk(x, 83, temperature=temperature)
    (grad,) = torch.autograd.grad(y, x, scores(3, 160).flip(-1).sign().to(dtype))
    assert grad.isfinite().all()
    torch.testing.assert_close(grad.abs().amax().double(), torch.tensor(1e30, dtype=torch.float64))
