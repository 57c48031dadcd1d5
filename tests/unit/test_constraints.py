"""The capped simplex and the k-hot vectors as constraints of torch.distributions."""

import math

import pytest
import torch

import khot
from khot.constraints import capped_simplex, k_hot, rounded_k_hot
from khot.designs import PinnedSigmoidTopKTransform, SigmoidTopKTransform


def test_capped_simplex_row_by_row():
    rows = torch.tensor(
        [[0.5, 0.5, 1.0], [1.5, 0.5, 0.0], [-0.1, 1.0, 1.1], [0.5, 0.5, 0.9], [1.0, 1.0, 0.0]]
    )
    assert capped_simplex(2).check(rows).tolist() == [True, False, False, False, True]


def test_a_sum_of_k_is_not_enough_and_a_range_neither():
    assert not capped_simplex(2).check(torch.tensor([3.0, -1.0]))
    assert not capped_simplex(2).check(torch.tensor([0.3, 0.3]))
    assert not capped_simplex(1).check(torch.tensor([math.nan, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 3.5, 60])
def test_what_the_operator_gives_is_accepted(dtype, k):
    x = torch.randn(50, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = khot.sigmoid_topk(x, k)
    assert capped_simplex(k).check(y).all()
    assert not capped_simplex(1.05 * k).check(y).any()
    assert k_hot(60).check(khot.hard_topk(x, 60)).all()


@pytest.mark.parametrize(("dtype", "stray"), [(torch.float32, 1e-4), (torch.float64, 1e-7)])
def test_the_tolerance_follows_the_dtype(dtype, stray):
    y = torch.tensor([0.5, 0.5], dtype=dtype)
    assert capped_simplex(1).check(y)
    assert not capped_simplex(1).check(y + stray)


def test_sums_of_long_half_rows_are_taken_exactly():
    """Summed in float16, 4096 halves would stall or overflow."""
    y = torch.full((2, 4096), 0.5, dtype=torch.float16)
    assert capped_simplex(2048).check(y).all()
    assert not capped_simplex(2000).check(y).any()


def test_a_budget_per_row():
    y = torch.tensor([[0.5, 0.5], [1.0, 1.0]])
    assert capped_simplex(torch.tensor([1.0, 2.0])).check(y).tolist() == [True, True]
    assert capped_simplex(torch.tensor([2.0, 2.0])).check(y).tolist() == [False, True]
    assert k_hot(torch.tensor([1, 2])).check(torch.tensor([[0.0, 1.0], [1.0, 1.0]])).tolist() == [True, True]


def test_k_hot_row_by_row():
    rows = torch.tensor(
        [[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.5, 0.5, 1.0], [2.0, 0.0, 0.0], [math.nan, 1.0, 1.0]]
    )
    assert k_hot(2).check(rows).tolist() == [True, False, False, False, False]
    assert k_hot(2).check(rows[:2].bool()).tolist() == [True, False]


def test_conventions_of_torch():
    for constraint in (capped_simplex(2), k_hot(2)):
        assert isinstance(constraint, torch.distributions.constraints.Constraint)
        assert constraint.event_dim == 1
        assert constraint.check(torch.zeros(4, 3, 5)).shape == (4, 3)
        assert constraint.check(torch.zeros(0, 5)).shape == (0,)
    assert k_hot(2).is_discrete
    assert not capped_simplex(2).is_discrete
    assert repr(capped_simplex(2)) == "capped_simplex(k=2)"
    assert repr(k_hot(3)) == "k_hot(k=3)"


@pytest.mark.parametrize("k", [-1, math.nan, math.inf])
@pytest.mark.parametrize("constraint", [capped_simplex, k_hot])
def test_bad_budgets(constraint, k):
    with pytest.raises(ValueError, match=rf"{constraint.__name__}: k must be finite and not negative, got"):
        constraint(k)


def test_k_hot_needs_an_integer():
    with pytest.raises(ValueError, match=r"k_hot: k must be an integer, got 1.5"):
        k_hot(1.5)


def test_rounded_k_hot():
    rows = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [0.5, 0.5, 0.5]])
    assert rounded_k_hot(1.5).check(rows).tolist() == [False, True, True, False, False]
    assert rounded_k_hot(2).check(rows).tolist() == [False, False, True, False, False]
    assert rounded_k_hot(1.5).is_discrete
    assert rounded_k_hot(1.5).event_dim == 1
    assert repr(rounded_k_hot(1.5)) == "rounded_k_hot(k=1.5)"
    with pytest.raises(ValueError, match="rounded_k_hot: k must be finite and not negative, got -1"):
        rounded_k_hot(-1)


NAMES = {constraint.__name__: constraint for constraint in (capped_simplex, k_hot, rounded_k_hot)}
NAMES |= {kind.__name__: kind for kind in (SigmoidTopKTransform, PinnedSigmoidTopKTransform)}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_budget(name):
    make = NAMES[name]
    for wrong in ("two", None, [2], True, 1j):
        with pytest.raises(TypeError, match=f"^{name}: k must be a number or a tensor, got "):
            make(wrong)
    for wrong in (torch.tensor(2j), torch.tensor(True)):
        with pytest.raises(TypeError, match=f"^{name}: k must be a real tensor, got "):
            make(wrong)
    for wrong in (math.nan, math.inf, -1, *(torch.tensor([1, w]) for w in (math.nan, math.inf, -1.0))):
        with pytest.raises(ValueError, match=f"^{name}: k must be finite and not negative, got "):
            make(wrong)
    for right in (2, 2.0, torch.tensor([1, 2]), torch.tensor(2.0)):
        assert make(right).k is right


def test_k_hot_needs_whole_numbers_in_a_tensor():
    with pytest.raises(ValueError, match="k_hot: k must be an integer, got"):
        k_hot(torch.tensor([1.0, 1.5]))


@pytest.mark.parametrize("constraint", [capped_simplex, k_hot, rounded_k_hot])
def test_what_is_no_vector(constraint):
    with pytest.raises(
        TypeError, match=rf"^{constraint.__name__}\.check: value must be a torch.Tensor, got list"
    ):
        constraint(1).check([1, 0])
