"""Every registered estimator: exactly k forward, masks, dimensions, one seed, a gradient that can be used."""

import math
from inspect import signature

import numpy as np
import pytest
import torch

import khot
from khot import estimators
from khot.estimators import estimate_gradient, get, names
from khot.estimators._arguments import has_log_prob
from strategies.quick_run import in_turn
from strategies.subset_oracles import seeded

NAMES = names()
PATHWISE = [name for name in NAMES if not get(name).needs_losses]
X = torch.randn(3, 4, 9, generator=seeded(1), dtype=torch.float64)


def weights(x, name):
    """Zeros and ones, or weights that sum to k for the one that is relaxed."""
    return name == "relaxed_subset" or bool(((x == 0) | (x == 1)).all())


@pytest.mark.parametrize(
    ("name", "k", "dtype"),
    in_turn(NAMES, [0, 1, 4, 9], [torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_values(name, dtype, k):
    x = get(name)(X.to(dtype), k, generator=seeded())
    assert (x.shape, x.dtype) == (X.shape, dtype)
    assert weights(x, name)
    torch.testing.assert_close(
        x.double().sum(-1), torch.full((3, 4), k, dtype=torch.float64), atol=0.05, rtol=0
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_parameter_is_that_of_the_law(name):
    """Scores give π = sigmoid_topk(scores, k), and logits do not."""
    theta = torch.linspace(-2, 2, 6, dtype=torch.float64)
    chosen = get(name)
    assert chosen.parameter in khot.designs.get(chosen.design).parameters
    if name == "relaxed_subset":
        chosen = get(name, hard=True)
    share = chosen(theta.expand(40_000, -1), 2, generator=seeded(4)).mean(0)
    near = (share - khot.sigmoid_topk(theta, 2)).abs().max() < 0.012
    assert near == (chosen.parameter == "scores")


@pytest.mark.parametrize("name", PATHWISE)
@pytest.mark.parametrize("k", [pytest.param(0, marks=pytest.mark.full), 2, 4])
def test_a_sample_of_scores_with_a_gradient_has_one(name, k):
    """Also where nothing is random, so that backward() works; likewise for every design."""
    options = [{}]
    if "design" in signature(getattr(estimators, name)).parameters:
        options = [{"design": d} for d in khot.designs.names() if name != "reinmax" or has_log_prob(d)]
    for option in options:
        scores = torch.randn(3, 4, generator=seeded(2), requires_grad=True)
        x = get(name, **option)(scores, k, generator=seeded())
        assert x.requires_grad
        (x * torch.arange(4)).sum().backward()
        assert scores.grad.isfinite().all()
        if k in (0, 4):
            assert (scores.grad == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_k_or_fewer_that_are_allowed_are_all_selected(name):
    """One rule for a mask and for scores of −inf, beside rows with more.

    In designs of several kinds; that every design draws such rows whole is in their own contract.
    """
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]).bool()
    options = [{}]
    if "design" in signature(getattr(estimators, name)).parameters:
        options = [{"design": d} for d in ("conditional_poisson", "plackett_luce", "systematic")]
    for option in options:
        try:
            call = get(name, **option)
        except ValueError:  # a design without a log-probability
            continue
        scores = torch.randn(4, 4, generator=seeded(2), requires_grad=True)
        x = call(scores, 2, mask=mask, generator=seeded())
        torch.testing.assert_close(x.detach()[0].sum(), torch.tensor(2.0))
        torch.testing.assert_close(x.detach()[1:], mask[1:].float())
        excluded = scores.detach().masked_fill(~mask, -math.inf)
        assert torch.equal(call(excluded, 2, generator=seeded()), x.detach())
        if name != "score_function":
            x.sum().backward()
            assert scores.grad.isfinite().all()
        else:
            loss = estimators.score_function_loss(
                lambda x: x[..., 0], scores, 2, mask=mask, generator=seeded(), **option
            )
            loss.sum().backward()
            assert scores.grad.isfinite().all()
            assert (scores.grad[1:] == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [4.0, np.int16(4), np.float64(4)])
def test_whole_numbers_of_every_type(name, k):
    assert torch.equal(get(name)(X, k, generator=seeded()), get(name)(X, 4, generator=seeded()))


@pytest.mark.parametrize("name", NAMES)
def test_dim_largest_mask_and_seed(name):
    call = get(name)
    straight = call(X, 2, generator=seeded())
    assert torch.equal(straight, call(X, 2, generator=seeded()))
    assert not torch.equal(straight, call(X, 2, generator=seeded(9)))
    turned = call(X.movedim(-1, 1), 2, dim=1, generator=seeded())
    assert torch.equal(turned.movedim(1, -1), straight)
    assert torch.equal(call(-X, 2, largest=False, generator=seeded()), straight)
    mask = torch.tensor([True] * 5 + [False] * 4)
    masked = call(X, 2, mask=mask, generator=seeded())
    assert (masked[..., 5:] == 0).all()
    excluded = call(X.masked_fill(~mask, -math.inf), 2, generator=seeded())
    assert torch.equal(masked, excluded)


@pytest.mark.parametrize("name", PATHWISE)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_and_leave_out_what_is_excluded(name, scale, dtype):
    scores = (scale * X).to(dtype)
    scores[..., 0], scores[..., 1] = math.inf, -math.inf
    scores = scores.requires_grad_()
    x = get(name)(scores, 4, mask=torch.arange(9) != 2, generator=seeded())
    grad = torch.autograd.grad((x * torch.randn(9, generator=seeded(3), dtype=dtype)).sum(), scores)[0]
    assert x.isfinite().all()
    assert grad.isfinite().all()
    assert (x[..., 0] == 1).all()
    assert (x[..., 1:3] == 0).all()
    assert (grad[..., 1:3] == 0).all()
    assert (grad[..., 0].abs() < 1e-30).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_moves_scores_the_right_way(name):
    """A loss that wants the first unit: the gradient at its score is negative, on average."""
    call = get(name, step=10.0) if name == "imle" else get(name)
    grad = estimate_gradient(lambda x: -x[..., 0], torch.zeros(2000, 6), 2, call, generator=seeded())
    mean = grad.mean(0)
    assert mean[0] < 0
    assert (mean[1:] > 0).all()
