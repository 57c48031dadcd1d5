"""Arguments that do not fit the dtype of the scores, or sit at the end of its range."""

import math

import pytest
import torch

import khot
from khot.testing import truth

pytestmark = pytest.mark.usefixtures("implementation")


def test_a_number_that_rounds_up_to_an_integer():
    """2.99999999 is 3 in float32, where the fourth score decides about the threshold."""
    y = khot.sigmoid_topk(torch.tensor([100.0, 100.0, 100.0, 0.0, 0.0]), 2.99999999)
    torch.testing.assert_close(y, torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]))


@pytest.mark.parametrize(
    ("dtype", "k"), [(torch.float32, 1e-8), (torch.float32, 1e-30), (torch.float64, 1e-17)]
)
@pytest.mark.parametrize("n", [1, 5])
def test_tiny_budgets(dtype, k, n):
    y = khot.sigmoid_topk(torch.zeros(n, dtype=dtype), k)
    torch.testing.assert_close(y, torch.full((n,), k / n, dtype=dtype), rtol=1e-5, atol=0)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_temperature_below_the_range_of_float32_is_no_nan(as_tensor):
    temperature = torch.tensor(1e-50, dtype=torch.float64) if as_tensor else 1e-50
    y = khot.sigmoid_topk(torch.tensor([1.0, 2.0, 3.0]), 1, temperature=temperature)
    assert y.tolist() == [0, 0, 1]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_temperature_above_the_range_of_float32_is_no_nan(as_tensor):
    temperature = torch.tensor(1e300, dtype=torch.float64) if as_tensor else 1e300
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = khot.sigmoid_topk(x, 1, temperature=temperature)
    torch.testing.assert_close(y, torch.full((3,), 1 / 3))
    (grad,) = torch.autograd.grad(y[0], x)
    assert grad.isfinite().all()


def test_differences_of_scores_that_overflow():
    """(x − anchor)/τ overflows in its first step, though the quotient is 6."""
    y = khot.sigmoid_topk(torch.tensor([3e38, -3e38, 0.0]), 1, temperature=1e38)
    expected = torch.tensor(truth.sigmoid([3.0, -3.0, 0.0], 1)).float()
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("ties", [2, 4])
def test_a_budget_just_above_an_integer_among_ties_above_a_crowd(ties):
    """The solver starts far from the root: 14 steps are not enough in float64."""
    n = 1_000_000
    x = torch.full((n,), -60.0, dtype=torch.float64)
    x[:ties] = 0
    k = math.nextafter(ties - 1, ties)
    y = khot.sigmoid_topk(x, k)
    assert abs(y.sum().item() - k) <= 1e-9 * k
    torch.testing.assert_close(
        y[:ties], torch.full((ties,), k / ties, dtype=torch.float64), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("gap", [20.0, 28.0, 36.0])
def test_gradient_of_nearly_hard_rows(gap):
    """The largest weight is 1 − e^(−gap/2): y(1 − y) of the rounded y has lost most or all of its digits."""
    x = torch.tensor([gap, 0.0], requires_grad=True)
    (grad,) = torch.autograd.grad(khot.sigmoid_topk(x, 1)[1], x)
    exact = math.exp(-gap / 2) / (1 + math.exp(-gap / 2)) ** 2 / 2
    assert grad.tolist() == pytest.approx([-exact, exact], rel=1e-4, abs=0)


@pytest.mark.parametrize("argument", ["k", "temperature"])
def test_complex_tensors_are_named_in_the_error(argument):
    arguments = {"k": 1, argument: torch.tensor(1j)}
    with pytest.raises(TypeError, match=rf"sigmoid_topk: {argument} must be a real tensor"):
        khot.sigmoid_topk(torch.zeros(3), **arguments)


def test_inverse_refuses_a_negative_temperature_tensor():
    with pytest.raises(ValueError, match=r"temperature must be positive and finite"):
        khot.inverse_sigmoid_topk(torch.tensor([0.5]), temperature=torch.tensor(-1.0))


def test_the_truth_of_scores_further_apart_than_its_precision():
    assert truth.sigmoid([1e30, 1e30, -1e30, -1e30], 2).tolist() == [1, 1, 0, 0]
