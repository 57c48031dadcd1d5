"""cdf_topk: gates of one's own give the known operators and the roots that brentq finds."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import cauchy, norm, t

import khot
from strategies import random_scores

scores = partial(random_scores.scores, spread=2)


def cauchy_cdf(a: torch.Tensor) -> torch.Tensor:
    return 0.5 + torch.atan(a) / math.pi


def student_cdf(a: torch.Tensor) -> torch.Tensor:
    """Two degrees of freedom; the second form does not lose the lower tail, nor overflow at 1e18."""
    root = torch.sqrt(2 + a.square())
    return torch.where(a > 0, (1 + a / root) / 2, 1 / (root * (root + a.abs())))


def normal_cdf(a: torch.Tensor) -> torch.Tensor:
    """Unlike `torch.special.ndtr`, exact in the lower tail."""
    return torch.special.erfc(-a / math.sqrt(2)) / 2


@pytest.mark.parametrize("k", [0.3, 1, 4.5, 9, 9.8])
def test_the_logistic_cdf_gives_sigmoid_topk(k):
    x = scores(4, 10).requires_grad_()
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    budget = torch.tensor(k, dtype=torch.float64, requires_grad=True)
    ours = khot.cdf_topk(x, budget, cdf=torch.sigmoid, temperature=temperature)
    theirs = khot.sigmoid_topk(x, budget, temperature=temperature)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    direction = scores(4, 10, seed=1)
    first = [
        torch.autograd.grad(y, (x, budget, temperature), direction, create_graph=True) for y in (ours, theirs)
    ]
    torch.testing.assert_close(*first, rtol=0, atol=1e-10)
    second = [
        torch.autograd.grad(sum(g.square().sum() for g in grads), (x, budget, temperature)) for grads in first
    ]
    torch.testing.assert_close(*second, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("cdf", "law"),
    [(cauchy_cdf, cauchy), (student_cdf, t(2)), (normal_cdf, norm)],
    ids=["cauchy", "t", "normal"],
)
@pytest.mark.parametrize("k", [0.25, 1, 7.5, 19, 19.9])
def test_threshold_is_the_root_that_brentq_finds(k, cdf, law):
    x, temperature = scores(20, seed=2), 0.6
    c = brentq(lambda c: law.cdf((x.numpy() + c) / temperature).sum() - k, -1e4, 1e4, xtol=1e-13, rtol=1e-14)
    y = khot.cdf_topk(x, k, cdf=cdf, temperature=temperature)
    np.testing.assert_allclose(y.numpy(), law.cdf((x.numpy() + c) / temperature), rtol=0, atol=1e-11)


def test_a_shifted_and_scaled_cdf_changes_only_the_temperature():
    """The threshold takes up the shift, so F need not be centred."""
    x = scores(12, seed=3)
    y = khot.cdf_topk(x, 5, cdf=lambda a: torch.sigmoid(3 * a - 700), temperature=2.0)
    torch.testing.assert_close(y, khot.sigmoid_topk(x, 5, temperature=2 / 3), rtol=0, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("k", [1, 2.5, 4])
def test_the_uniform_cdf_gives_sparse_topk(k, temperature):
    """Its tails are exactly 0 and 1, and it is flat there."""
    x = scores(30, 9, seed=11)
    y = khot.cdf_topk(x, k, cdf=lambda a: a.clamp(0, 1), temperature=temperature)
    torch.testing.assert_close(y, khot.sparse_topk(x, k, temperature=temperature), rtol=0, atol=1e-14)


def test_gradients_are_those_of_finite_differences():
    x, k, temperature = scores(6, seed=4), torch.tensor(2.3), torch.tensor(0.8)
    inputs = [v.double().requires_grad_() for v in (x, k, temperature)]
    assert torch.autograd.gradcheck(
        lambda x, k, t: khot.cdf_topk(x, k, cdf=student_cdf, temperature=t), inputs
    )


def test_a_given_density_is_used():
    """The right one changes nothing; with a wrong one w, the gradient is diag(w) − wwᵀ/W of that one."""
    x = scores(7, seed=5).requires_grad_()

    def right(a):
        return 1 / (math.pi * (1 + a.square()))

    def wrong(a):
        return right(a) * (2 + torch.cos(a))

    direction = scores(7, seed=6)
    y = {density: khot.cdf_topk(x, 3, cdf=cauchy_cdf, density=density) for density in (None, right, wrong)}
    found = {density: torch.autograd.grad(y[density], x, direction)[0] for density in y}
    torch.testing.assert_close(found[right], found[None], rtol=0, atol=1e-12)
    w = wrong(torch.tan(math.pi * (y[wrong].detach() - 0.5)))
    expected = w * (direction - (w * direction).sum() / w.sum())
    torch.testing.assert_close(found[wrong], expected, rtol=0, atol=1e-12)
    assert (found[wrong] - found[right]).abs().max() > 0.01


def test_survival_keeps_the_digits_of_weights_near_one():
    """The threshold lies where the upper tails of some balance the lower of others, at 1e-8 of their size."""
    x = torch.tensor([11.0, 10.5, 0.0, -0.5], dtype=torch.float64)
    k = torch.tensor(2.0, dtype=torch.float64)
    c = brentq(
        lambda c: math.log(norm.cdf(x[2:] + c).sum()) - math.log(norm.sf(x[:2] + c).sum()), -12, 0, xtol=1e-14
    )
    w = norm.pdf(x.numpy() + c)
    direction = scores(4, seed=7)
    expected = w * (direction.numpy() - (w * direction.numpy()).sum() / w.sum())

    def error(survival):
        scores = x.clone().requires_grad_()
        y = khot.cdf_topk(scores, k, cdf=normal_cdf, survival=survival)
        (grad,) = torch.autograd.grad(y, scores, direction)
        return np.abs(grad.numpy() - expected).max() / np.abs(expected).max()

    assert error(lambda a: normal_cdf(-a)) <= 1e-11
    assert error(None) >= 1e-11


def test_with_survival_it_is_normal_topk_near_one():
    x = torch.tensor([[9.0, 8.0, 0.5, 0.0], [14.0, 13.0, 1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    direction = scores(2, 4, seed=8)
    ours = khot.cdf_topk(x, 2, cdf=normal_cdf, survival=lambda a: normal_cdf(-a))
    theirs = khot.normal_topk(x, 2)
    grads = [torch.autograd.grad(y, x, direction)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=0)


@pytest.mark.parametrize("argument", ["cdf", "density", "survival"])
def test_what_is_no_function_is_an_error(argument):
    functions = {"cdf": torch.sigmoid} | {argument: 0.5}
    with pytest.raises(TypeError, match=f"cdf_topk: {argument} must be a function, got float"):
        khot.cdf_topk(torch.zeros(3), 1, **functions)


def test_no_cdf_is_an_error():
    with pytest.raises(TypeError, match="cdf"):
        khot.cdf_topk(torch.zeros(3), 1, cdf=None)


def test_masked_entries_are_as_if_they_were_not_there():
    x = scores(3, 8, seed=9).requires_grad_()
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[:, [1, 4]] = False
    y = khot.cdf_topk(x, 2.5, cdf=cauchy_cdf, mask=mask)
    torch.testing.assert_close(y[:, mask[0]], khot.cdf_topk(x[:, mask[0]], 2.5, cdf=cauchy_cdf))
    assert (y[~mask] == 0).all()
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert grad.isfinite().all()
    assert (grad[~mask] == 0).all()


@pytest.mark.parametrize("cdf", [cauchy_cdf, torch.sigmoid, normal_cdf])
def test_infinite_scores_are_surely_in_or_out(cdf):
    x = torch.tensor([math.inf, 1.0, -math.inf, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = khot.cdf_topk(x, 2, cdf=cdf)
    assert y[0] == 1
    assert y[2] == 0
    torch.testing.assert_close(y[[1, 3, 4]], khot.cdf_topk(x[[1, 3, 4]], 1, cdf=cdf))
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert grad.isfinite().all()
    assert (grad[[0, 2]] == 0).all()


@pytest.mark.parametrize(("k", "expected"), [(0, 0.0), (5, 1.0)])
def test_nothing_and_everything(k, expected):
    """Such weights do not move, neither with the scores nor with the budget, as in `sigmoid_topk`."""
    x = scores(5).requires_grad_()
    budget = torch.tensor(float(k), dtype=torch.float64, requires_grad=True)
    y = khot.cdf_topk(x, budget, cdf=cauchy_cdf)
    assert (y == expected).all()
    for grad in torch.autograd.grad(y, (x, budget), scores(5, seed=1)):
        assert (grad == 0).all()


def test_hard_is_the_hard_selection_with_the_soft_gradient():
    x = scores(3, 6).requires_grad_()
    grads = [
        torch.autograd.grad(khot.cdf_topk(x, 2, cdf=cauchy_cdf, hard=hard), x, scores(3, 6, seed=1))[0]
        for hard in (True, False)
    ]
    assert torch.equal(*grads)
    assert torch.equal(khot.cdf_topk(x, 2, cdf=cauchy_cdf, hard=True), khot.hard_topk(x, 2))


def test_transforms_of_functions_work():
    x = scores(4, 6, seed=10)

    def operator(row):
        return khot.cdf_topk(row, 2.5, cdf=torch.sigmoid)

    torch.testing.assert_close(torch.func.vmap(operator)(x), khot.sigmoid_topk(x, 2.5), rtol=0, atol=1e-10)
    expected = torch.stack(
        [torch.autograd.functional.jacobian(lambda r: khot.sigmoid_topk(r, 2.5), row) for row in x]
    )
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        jacobians = torch.func.vmap(transform(operator))(x)
        torch.testing.assert_close(jacobians, expected, rtol=0, atol=1e-10)
