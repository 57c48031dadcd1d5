"""Calls in which nothing is to be settled take a shorter way, to the same weights and gradients."""

import pytest
import torch

import khot
from khot.relaxations import _problem, registry
from strategies.random_scores import scores

ROWS = [
    name
    for name in registry.names()
    if not registry.get(name).stochastic
    and name not in ("sigmoid", "laplace", "normal", "sparse", "sinkhorn")  # these have kernels
]
SETTINGS = [(name, {}) for name in ROWS] + [
    ("sinkhorn", {"variant": "sorted"}),
    ("iterative", {"variant": "as-printed"}),  # NaN where the paper has 0/0
    ("soft_rank", {"regularization": "kl"}),
    ("network", {"network": "odd_even"}),
]


def with_gradient(x, k, name, **options):
    leaf = x.clone().requires_grad_()
    y = khot.topk(leaf, k, name, temperature=0.7, **options)
    (gradient,) = torch.autograd.grad(y, leaf, scores(*y.shape, seed=1))
    return y.detach(), gradient


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_weights_and_gradients_are_those_of_the_long_way(name, options):
    """Which a mask that excludes nothing takes."""
    for shape, k, dim in (((3, 7), 3, -1), ((2, 8, 3), 1, 1), ((9,), 8, 0)):
        x = 3 * scores(*shape)
        x.view(-1)[1] = x.view(-1)[0]
        everything = torch.ones(shape, dtype=torch.bool)
        expected = with_gradient(x, k, name, dim=dim, mask=everything, **options)
        for actual, right in zip(with_gradient(x, k, name, dim=dim, **options), expected, strict=True):
            torch.testing.assert_close(actual, right, rtol=1e-9, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 1e11, -1e11])
def test_what_is_not_ordinary_is_noticed(value):
    x = scores(2, 5)
    assert _problem._ordinary(x, 2, 1.0, 1, None, None) is not None
    x[1, 3] = value
    assert _problem._ordinary(x, 2, 1.0, 1, None, None) is None


@pytest.mark.parametrize(
    ("k", "temperature", "mask"),
    [
        (0, 1.0, None),
        (5, 1.0, None),
        (torch.tensor(2), 1.0, None),
        (2, torch.tensor(1.0), None),
        (2, 1e-11, None),
        (2, 1e11, None),
        (2, 1.0, torch.ones(5, dtype=torch.bool)),
    ],
)
def test_arguments_that_take_the_long_way(k, temperature, mask):
    assert _problem._ordinary(scores(2, 5), k, temperature, 1, mask, None) is None


def test_an_offset_costs_no_digits():
    x = scores(2, 9).float()
    for name in ("softsort", "iterative", "neuralsort"):
        apart = khot.topk(x, 3, name) - khot.topk(x + 1024, 3, name)
        rounding = (x + 1024 - 1024 - x).abs().max()
        assert apart.abs().max() <= 8 * rounding
