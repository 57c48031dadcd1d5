"""inverse_sigmoid_topk: scores for wanted weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot

pytestmark = pytest.mark.usefixtures("implementation")


@given(st.lists(st.floats(1e-9, 1 - 1e-9), min_size=1, max_size=20), st.sampled_from([0.1, 1.0, 7.0]))
def test_round_trip(values, temperature):
    y = torch.tensor(values, dtype=torch.float64)
    x = khot.inverse_sigmoid_topk(y, temperature=temperature)
    back = khot.sigmoid_topk(x, y.sum(-1).item(), temperature=temperature)
    # Σy is rounded: eps·n of it can move one weight, if the others cannot move
    torch.testing.assert_close(back, y, rtol=1e-12, atol=2.0**-51 * len(values))


def test_round_trip_of_rows_with_zeros_and_ones():
    y = torch.tensor([[0.0, 1.0, 0.25, 0.5], [1.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 1.0]], dtype=torch.float64)
    x = khot.inverse_sigmoid_topk(y)
    assert x[0, 0] == -math.inf
    assert x[0, 1] == math.inf
    torch.testing.assert_close(khot.sigmoid_topk(x, y.sum(-1)), y, rtol=1e-13, atol=0)


def test_the_threshold_is_at_zero():
    """A weight of ½ has score 0, and the temperature scales the scores."""
    y = torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64)
    expected = torch.tensor([0.0, math.log(3), -math.log(3)], dtype=torch.float64)
    torch.testing.assert_close(khot.inverse_sigmoid_topk(y), expected)
    torch.testing.assert_close(khot.inverse_sigmoid_topk(y, temperature=2.0), 2 * expected)
    per_entry = khot.inverse_sigmoid_topk(y, temperature=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    torch.testing.assert_close(per_entry, expected * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))


def test_it_is_the_right_inverse_of_the_gradient_too():
    """Through both, dy/dy is the identity on changes that keep the sum."""
    y = torch.tensor([0.2, 0.5, 0.9, 0.4], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda v: khot.sigmoid_topk(khot.inverse_sigmoid_topk(v), 2.0), y
    )
    change = torch.tensor([0.3, -0.1, 0.2, -0.4], dtype=torch.float64)
    torch.testing.assert_close(jacobian @ change, change, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_weights_outside_the_unit_interval_are_an_error(bad):
    with pytest.raises(ValueError, match=r"inverse_sigmoid_topk: y must lie in \[0, 1\]"):
        khot.inverse_sigmoid_topk(torch.tensor([0.5, bad]))


def test_integer_weights_are_an_error():
    with pytest.raises(TypeError, match=r"inverse_sigmoid_topk: y must have a floating-point dtype"):
        khot.inverse_sigmoid_topk(torch.tensor([0, 1]))


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_bad_temperature_is_an_error(bad):
    with pytest.raises(ValueError, match=r"inverse_sigmoid_topk: temperature must be positive and finite"):
        khot.inverse_sigmoid_topk(torch.tensor([0.5]), temperature=bad)


def test_an_empty_tensor_is_fine():
    assert khot.inverse_sigmoid_topk(torch.zeros(0, 3)).shape == (0, 3)
