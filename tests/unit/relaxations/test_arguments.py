"""The shared arguments of operators in row form, and where tensors are checked."""

import math
import warnings

import numpy as np
import pytest
import torch

import khot
from khot.relaxations import registry
from khot.relaxations._arguments import as_rows, budget, check_temperature, compute_dtype, position
from khot.relaxations._temperature import exponential


def test_rows_have_the_dimension_last_and_minus_infinity_where_excluded():
    x = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([True, False, True]).reshape(3, 1)
    rows = as_rows("f", x, 2, 0.5, 1, mask)
    assert rows.scores.shape == (2, 4, 3)
    assert (rows.scores[..., 1] == -math.inf).all()
    assert torch.equal(rows.scores[..., [0, 2]], x.movedim(1, -1)[..., [0, 2]])
    assert rows.k.shape == rows.temperature.shape == (2, 4, 1)
    assert (rows.k == 2).all()
    assert (rows.temperature == 0.5).all()


def test_only_a_number_tells_how_much_must_be_sorted():
    x = torch.zeros(2, 9)
    assert as_rows("f", x, 3, 1.0, -1, None).n_sorted == 5  # the fourth, and one more if 3 were rounded up to
    assert as_rows("f", x, 3.7, 1.0, -1, None).n_sorted == 5
    assert as_rows("f", x, torch.tensor(3.0), 1.0, -1, None).n_sorted is None


@pytest.mark.parametrize(
    ("dtype", "computed"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_types_are_computed_in_float32(dtype, computed):
    x = torch.zeros(3, dtype=dtype)
    assert compute_dtype(x) == computed
    rows = as_rows("f", x, 1, torch.tensor(1.0), -1, None)
    assert rows.scores.dtype == dtype
    assert rows.k.dtype == rows.temperature.dtype == computed


def test_the_position_of_a_dimension():
    x = torch.zeros(2, 3, 4)
    assert [position("f", x, dim) for dim in (-3, -2, -1, 0, 1, 2)] == [0, 1, 2, 0, 1, 2]
    for dim in (3, -4):
        with pytest.raises(IndexError, match=rf"f: dim must be in \[-3, 2\], got {dim}"):
            position("f", x, dim)


def test_an_integer_budget_is_checked_and_a_tensor_rounded():
    x = torch.zeros(3, 5)
    assert budget("f", x, 2.0, 1, integer=True).unique().tolist() == [2.0]
    rounded = budget("f", x, torch.tensor([1.4, 1.6, 4.9]), 1, integer=True)
    assert rounded.ravel().tolist() == [1.0, 2.0, 5.0]
    kept = budget("f", x, torch.tensor([1.5, 1.6, 4.5]), 1)
    assert kept.ravel().tolist() == pytest.approx([1.5, 1.6, 4.5])


def test_errors_name_function_argument_rule_and_value():
    x = torch.zeros(3, 5)
    with pytest.raises(ValueError, match=r"^f: k must satisfy 0 <= k <= n = 5 .* got k = 6$"):
        as_rows("f", x, 6, 1.0, -1, None)
    with pytest.raises(ValueError, match=r"^f: k must satisfy .* got a tensor with values in \[-1, 7\]$"):
        as_rows("f", x, torch.tensor([-1.0, 7.0, 2.0]), 1.0, -1, None)
    with pytest.raises(ValueError, match=r"^f: temperature must be positive and finite, got -3$"):
        as_rows("f", x, 1, -3, -1, None)
    with pytest.raises(TypeError, match=r"^f: mask must be a boolean tensor .* got torch.int64$"):
        as_rows("f", x, 1, 1.0, -1, torch.ones(5, dtype=torch.int64))
    with pytest.raises(
        ValueError, match=r"^f: mask must broadcast to scores.shape = \(3, 5\), got shape \(5, 3\)$"
    ):
        as_rows("f", x, 1, 1.0, -1, torch.ones(5, 3, dtype=torch.bool))


def test_values_of_tensors_that_cannot_be_read_are_not_checked():
    """Under vmap a tensor has no values yet: no error, and no crash."""
    x = torch.zeros(2, 3)
    k = torch.tensor([1.0, 99.0])
    shapes = torch.func.vmap(lambda one, b: as_rows("f", one, b, 1.0, -1, None).k)(x, k)
    assert shapes.shape == (2, 1)


def test_the_graph_of_a_tensor_argument_is_kept():
    k = torch.tensor([1.0, 2.0], requires_grad=True)
    temperature = torch.tensor(0.5, requires_grad=True)
    rows = as_rows("f", torch.zeros(2, 4), k, temperature, -1, None)
    of_k, of_t = torch.autograd.grad(rows.k.sum() + rows.temperature.sum(), (k, temperature))
    assert of_k.tolist() == [1.0, 1.0]
    assert of_t.item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logarithm", [-1e4, -110.0, -1.0, 0.0, 3.0, 1e4])
def test_a_learned_logarithm_gives_a_temperature_whatever_it_is(logarithm, dtype):
    """exp(−110) is 0 in float32: the temperature stays positive, and its gradient can bring it back."""
    learned = torch.tensor(logarithm, dtype=dtype, requires_grad=True)
    temperature = exponential(learned)
    info = torch.finfo(dtype)
    assert temperature == torch.tensor(logarithm, dtype=dtype).exp().clamp(info.tiny, info.max)
    (gradient,) = torch.autograd.grad(temperature, learned)
    assert gradient == temperature
    check_temperature("f", temperature)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8])
def test_tensors_of_any_integers_are_budgets_and_temperatures(dtype):
    """torch does not compare most unsigned integers."""
    x, two = torch.zeros(3, 5), torch.tensor([2, 2, 2], dtype=dtype)
    rows = as_rows("f", x, two, two, -1, None)
    assert rows.k.unique().tolist() == rows.temperature.unique().tolist() == [2.0]
    with pytest.raises(ValueError, match=r"^f: k must satisfy .* got a tensor with values in \[9, 9\]$"):
        as_rows("f", x, torch.tensor(9, dtype=dtype), 1.0, -1, None)


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize(
    ("scores", "switches", "message"),
    [
        (torch.randn(2, 5).to(torch.float8_e4m3fn), {}, "scores must have .* got torch.float8_e4m3fn"),
        (torch.eye(5).to_sparse(), {}, "scores must be dense, got torch.sparse_coo"),
        (torch.eye(5), {"largest": "no"}, "^topk: largest must be True or False, got 'no'"),
        (torch.eye(5), {"hard": "False"}, "^topk: hard must be True or False, got 'False'"),
        (torch.eye(5), {"hard": 1}, "^topk: hard must be True or False, got 1"),
        (torch.eye(5), {"at_most": "no"}, "^topk: at_most must be True or False, got 'no'"),
        (torch.eye(5), {"capped": None}, "^topk: capped must be True or False, got None"),
    ],
)
def test_what_would_be_misunderstood_is_refused(method, scores, switches, message):
    with pytest.raises(TypeError, match=message):
        khot.topk(scores, 2, method=method, **switches)


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "normal", "sparse"])
def test_a_hard_selection_of_half_an_entry_is_refused_by_the_operator(method):
    with pytest.raises(ValueError, match=f"{method}_topk: .*2.5"):
        khot.topk(torch.randn(5), 2.5, method=method, hard=True)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a prototype
    NESTED = torch.nested.nested_tensor([torch.ones(4), torch.ones(3)])


@pytest.mark.parametrize("method", registry.names())
def test_tensors_of_another_kind_are_refused_by_name(method):
    """Nested, sparse, or without memory."""
    x, once = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)), torch.ones(2)
    mask = torch.ones(2, 4, dtype=torch.bool)
    elsewhere = "be on the device of the scores, cpu, got meta"
    for change, rule in (
        ({"scores": NESTED}, "scores must be dense, got a nested tensor"),
        ({"scores": NESTED, "largest": False}, "scores must be dense, got a nested tensor"),
        ({"k": once.to_sparse()}, "k must "),  # some have one k for all rows
        ({"k": torch.tensor(2, device="meta")}, "k must "),
        ({"temperature": once.to_sparse()}, "temperature must be dense, got torch.sparse_coo"),
        ({"temperature": once.to("meta")}, f"temperature must {elsewhere}"),
        ({"temperature": 10**400}, "temperature must be positive and finite, got 1000"),
        ({"mask": mask.to_sparse()}, "mask must be dense, got torch.sparse_coo"),
        ({"mask": mask.to("meta")}, f"mask must {elsewhere}"),
        ({"mask": torch.nested.nested_tensor_from_jagged(mask[0], torch.tensor([0, 1, 4]))}, "mask must be"),
    ):
        arguments = {"scores": x, "k": 2} | change
        with pytest.raises((TypeError, ValueError), match=rf"^\w+: {rule}"):
            khot.topk(method=method, **arguments)


@pytest.mark.parametrize("dim", [None, "0", (0, 1), True, 1.5])
def test_a_dimension_is_an_integer(dim):
    with pytest.raises(TypeError, match=r"^sigmoid_topk: dim must be an integer, got "):
        khot.sigmoid_topk(torch.zeros(2, 4), 2, dim=dim)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_numbers_of_numpy_are_temperatures_and_budgets(kind):
    rows = as_rows("f", torch.zeros(3, 5), kind(2), kind(2), -1, None)
    assert rows.k.unique().tolist() == rows.temperature.unique().tolist() == [2.0]
