"""straight_through: the value of one tensor, the gradient of another."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from khot.estimators import straight_through

numbers = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_the_value_is_hard_to_the_last_bit(pairs):
    soft, hard = torch.tensor(pairs).unbind(-1)
    assert torch.equal(straight_through(soft.clone().requires_grad_(), hard), hard)


def test_the_gradient_is_that_of_soft_and_of_soft_only():
    soft = torch.tensor([0.2, 0.8], requires_grad=True)
    hard = torch.tensor([0.0, 1.0], requires_grad=True)
    y = straight_through(3 * soft, hard)
    of_soft, of_hard = torch.autograd.grad(y, (soft, hard), torch.tensor([1.0, 10.0]), allow_unused=True)
    assert of_soft.tolist() == [3.0, 30.0]
    assert of_hard is None


def test_second_derivatives_are_those_of_soft():
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    y = straight_through(x**3, torch.ones((), dtype=torch.float64))
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert first.item() == pytest.approx(3 * 0.3**2)
    assert second.item() == pytest.approx(6 * 0.3)


def test_inputs_are_left_alone():
    soft, hard = torch.tensor([0.2, 0.8]), torch.tensor([0.0, 1.0])
    y = straight_through(soft, hard)
    y.add_(1)
    assert soft.tolist() == pytest.approx([0.2, 0.8])
    assert hard.tolist() == [0.0, 1.0]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"straight_through: .* got \(2, 1\) and \(2,\)"):
        straight_through(torch.zeros(2, 1), torch.zeros(2))


@pytest.mark.parametrize("wrong", [[1.0, 0.0], None, "soft", 1.0])
def test_what_is_no_tensor(wrong):
    x = torch.zeros(2)
    for argument, pair in (("soft", (wrong, x)), ("hard", (x, wrong))):
        with pytest.raises(TypeError, match=f"straight_through: {argument} must be a torch.Tensor, got"):
            straight_through(*pair)
