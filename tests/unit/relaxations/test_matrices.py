"""topk_matrix and topk_values over every method."""

import math

import pytest
import torch

from khot import hard_topk, topk, topk_matrix, topk_values
from khot.relaxations import Relaxation, registry
from khot.relaxations.facade import has_rows
from strategies.random_scores import scores

WITH_ROWS = [name for name, spec in registry.specs().items() if has_rows(spec) and not spec.stochastic]
METHODS = pytest.mark.parametrize("method", WITH_ROWS)


@METHODS
def test_cold_values_are_those_of_torch_topk(method):
    x = scores(4, 12)
    for largest in (True, False):
        expected = torch.topk(x, 5, largest=largest).values
        hard = topk_values(x, 5, method, hard=True, largest=largest)
        torch.testing.assert_close(hard, expected)
        cold = topk_values(x, 5, method, temperature=1e-8, largest=largest)
        # Successive halving has no sort after its last round: its slots are the values in another order.
        in_order = cold.sort(-1, descending=largest).values if method == "successive_halving" else cold
        torch.testing.assert_close(in_order, expected, atol=1e-6, rtol=0)


@METHODS
def test_any_dim_and_smallest(method):
    x = scores(3, 7, 2)
    rows = topk_matrix(x, 3, method, dim=1)
    assert rows.shape == (3, 2, 3, 7)
    torch.testing.assert_close(rows, topk_matrix(x.movedim(1, -1), 3, method))
    smallest = topk_matrix(x, 3, method, dim=1, largest=False)
    torch.testing.assert_close(smallest, topk_matrix(-x, 3, method, dim=1))
    values = topk_values(x, 3, method, dim=1)
    assert values.shape == (3, 3, 2)
    torch.testing.assert_close(values, (rows @ x.movedim(1, -1).unsqueeze(-1)).squeeze(-1).movedim(-1, 1))


@METHODS
def test_excluded_entries_have_no_part_in_values(method):
    x = scores(2, 6)
    x[:, 1] = -math.inf
    leaf = x.clone().requires_grad_()
    values = topk_values(leaf, 4, method)
    torch.testing.assert_close(values.detach(), topk_values(x[:, [0, 2, 3, 4, 5]], 4, method))
    (grad,) = torch.autograd.grad(values.sum(), leaf)
    assert grad.isfinite().all()
    few = topk_values(x, 4, method, mask=torch.arange(6) < 3)  # two are left
    assert not few[:, 2:].any()


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "normal", "sparse"])
def test_rows_of_the_threshold_family_are_increments_of_the_budget(method):
    x = scores(3, 8)
    temperature = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    rows = topk_matrix(x, 5, method, temperature=temperature)
    for r in range(5):
        more, less = (topk(x, budget, method, temperature=temperature) for budget in (r + 1, r))
        torch.testing.assert_close(rows[:, r], more - less)


def test_options_reach_the_method():
    x = scores(2, 6)
    kl = topk_matrix(x, 2, "soft_rank", regularization="kl")
    assert not torch.allclose(kl, topk_matrix(x, 2, "soft_rank"))
    with pytest.raises(TypeError, match="method 'softsort' has no option 'norm'; its options: none"):
        topk_matrix(x, 2, "softsort", norm=1.5)
    with pytest.raises(ValueError, match="topk_matrix: k must be an integer"):
        topk_matrix(x, 1.5)
    with pytest.raises(ValueError, match="unknown method 'merge'"):
        topk_values(x, 1, "merge")


def test_a_method_without_rows_says_so():
    spec = Relaxation(name="mine", weights=lambda x, k, **_: hard_topk(x, k))
    with pytest.raises(TypeError, match="method 'mine' gives weights alone"):
        topk_matrix(scores(4), 2, spec)


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "normal", "sparse"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_increments_are_taken_before_rounding_to_a_half_type(method, dtype):
    rows = topk_matrix(torch.zeros(1000, dtype=dtype), 500, method)
    assert rows.dtype == dtype
    rounded = torch.tensor(1e-3).to(dtype)  # of 1000 equal weights
    assert rows.min() >= 0.99 * rounded
    assert rows.max() <= 1.01 * rounded
    x = torch.linspace(0, 1, 1000).to(dtype)
    values = topk_values(x, 500, method, temperature=100.0)
    exact = topk_values(x.double(), 500, method, temperature=100.0)
    torch.testing.assert_close(values.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=0)


@METHODS
@pytest.mark.parametrize("largest", [True, False])
def test_values_at_infinity_are_values(method, largest):
    x = scores(2, 6)
    x[0, 4] = math.inf if largest else -math.inf
    leaf = x.clone().requires_grad_()
    values = topk_values(leaf, 3, method, temperature=1e-6, largest=largest)
    expected = torch.topk(x, 3, largest=largest).values
    torch.testing.assert_close(values.sort(-1, descending=largest).values, expected, atol=1e-5, rtol=0)
    (grad,) = torch.autograd.grad(values[values.isfinite()].sum(), leaf)
    assert grad.isfinite().all()


@pytest.mark.parametrize("method", [n for n, spec in registry.specs().items() if spec.matrix is not None])
def test_the_number_of_rows_is_one_integer(method):
    matrix, x = registry.get(method).matrix, scores(3, 5)
    for wrong, kind in ((1.5, ValueError), ("2", TypeError), (True, TypeError), (torch.tensor(2), TypeError)):
        for call in (matrix, lambda x, k: topk_matrix(x, k, method), lambda x, k: topk_values(x, k, method)):
            with pytest.raises(kind, match=r"^\w+: k must be (an|one) integer"):
                call(x, wrong)
    assert matrix(x, 2.0).shape == (3, 2, 5)
    assert matrix(x, 0).shape == (3, 0, 5)


@METHODS
@pytest.mark.parametrize("k", [0, 2])
def test_a_temperature_of_another_shape_or_0_is_refused(method, k):
    for call in (topk_matrix, topk_values):
        with pytest.raises(ValueError, match=r"^\w+: temperature must broadcast"):
            call(scores(3, 5), k, method, temperature=torch.ones(7))
        with pytest.raises(ValueError, match=r"^\w+: temperature must be"):
            call(torch.zeros(0, 5), k, method, temperature=torch.tensor(0.0))
