"""hard_topk against a stable sort by brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot

pytestmark = pytest.mark.usefixtures("implementation")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INF, NAN = math.inf, math.nan


def brute_force(values: list[float], k: int, mask: list[bool] | None = None) -> list[float]:
    """The k largest by a stable sort, NaN first, then +inf; never −inf nor what the mask excludes."""
    allowed = [i for i, v in enumerate(values) if (mask is None or mask[i]) and v != -INF]
    keys = np.array([(-1, 0.0) if math.isnan(values[i]) else (0, -values[i]) for i in allowed])
    order = np.lexsort((keys[:, 1], keys[:, 0])) if allowed else []
    chosen = {allowed[i] for i in order[:k]}
    return [float(i in chosen) for i in range(len(values))]


few = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, INF, -INF, NAN])
rows = st.lists(few, min_size=1, max_size=12)


@given(st.data(), rows, st.sampled_from(DTYPES))
def test_equals_brute_force(data, values, dtype):
    k = data.draw(st.integers(0, len(values)))
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    x = torch.tensor(values, dtype=dtype)
    expected = brute_force(values, k, mask)
    allowed = None if mask is None else torch.tensor(mask)
    for budget in (k, torch.tensor(k), torch.tensor(float(k))):
        y = khot.hard_topk(x, budget, mask=allowed)
        assert y.dtype == dtype
        assert y.tolist() == expected


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_equals_numpy_argsort(values):
    x = np.array(values, dtype=np.float32)
    order = np.argsort(-x, kind="stable")
    for k in range(len(values) + 1):
        expected = np.zeros(len(values))
        expected[order[:k]] = 1
        assert khot.hard_topk(torch.from_numpy(x), k).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(200, 50), (3, 5000), (1, 100_000)])
@pytest.mark.parametrize("levels", [2, 30, 10**9])
def test_large_rows_with_and_without_ties(shape, levels):
    x = np.random.default_rng(0).integers(0, levels, shape).astype(np.float64)
    n = shape[1]
    order = np.argsort(-x, axis=-1, kind="stable")
    for k in (1, n // 3, n - 1):
        expected = np.zeros(shape)
        np.put_along_axis(expected, order[:, :k], 1, axis=-1)
        assert np.array_equal(khot.hard_topk(torch.from_numpy(x), k).numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_go_to_the_lower_index_and_never_more_than_k(dtype):
    y = khot.hard_topk(torch.ones(3, 9, dtype=dtype), torch.tensor([0, 4, 9]))
    assert y.tolist() == [[0.0] * 9, [1.0] * 4 + [0.0] * 5, [1.0] * 9]


def test_a_budget_per_row_is_each_row_alone():
    x = torch.randn(4, 5, 10, generator=torch.Generator().manual_seed(0)).round()
    k = torch.arange(20).reshape(4, 5) % 11
    y = khot.hard_topk(x, k)
    for i in range(4):
        for j in range(5):
            assert y[i, j].tolist() == brute_force(x[i, j].tolist(), int(k[i, j]))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (4, 5)])
def test_a_budget_tensor_broadcasts_and_is_rounded(shape):
    x = torch.randn(4, 5, 9, generator=torch.Generator().manual_seed(1))
    k = 8 * torch.rand(shape, generator=torch.Generator().manual_seed(2))
    counts = khot.hard_topk(x, k).sum(-1)
    assert torch.equal(counts, k.round().expand(4, 5))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_any_dim_and_strides(dim):
    x = torch.randn(6, 7, 8, generator=torch.Generator().manual_seed(3))
    expected = khot.hard_topk(x.movedim(dim, -1).contiguous(), 3).movedim(-1, dim)
    assert torch.equal(khot.hard_topk(x, 3, dim=dim), expected)
    assert (khot.hard_topk(x, 3, dim=dim).sum(dim) == 3).all()
    strided = torch.randn(6, 7, 16, generator=torch.Generator().manual_seed(3))[..., ::2]
    assert torch.equal(khot.hard_topk(strided, 3), khot.hard_topk(strided.contiguous(), 3))


def test_nan_is_the_largest_as_in_torch_topk():
    x = torch.tensor([1.0, NAN, INF, 3.0, NAN])
    for k in range(1, 6):
        assert set(khot.hard_topk(x, k).nonzero().ravel().tolist()) >= set(x.topk(min(k, 2)).indices.tolist())
    assert khot.hard_topk(x, 1).tolist() == [0, 1, 0, 0, 0]
    assert khot.hard_topk(x, 3).tolist() == [0, 1, 1, 0, 1]


def test_minus_infinity_is_never_selected():
    x = torch.tensor([[-INF, 1.0, -INF], [-INF, -INF, -INF]])
    for k in range(4):
        assert khot.hard_topk(x, k).tolist() == [[0, float(k > 0), 0], [0, 0, 0]]


def test_it_has_no_gradient_and_leaves_its_input_alone():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(4)).requires_grad_()
    before = x.detach().clone()
    assert not khot.hard_topk(x, 2, mask=torch.tensor([True, False, True, True])).requires_grad
    assert torch.equal(x, before)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_empty(shape):
    assert khot.hard_topk(torch.zeros(shape), 0).shape == shape


@pytest.mark.parametrize(
    ("k", "error"), [(2.5, ValueError), (-1, ValueError), (5, ValueError), ("2", TypeError)]
)
def test_bad_budgets(k, error):
    with pytest.raises(error, match=r"hard_topk: k must .* got"):
        khot.hard_topk(torch.zeros(4), k)


def test_whole_numbers_of_any_type_are_integers():
    x = torch.arange(4.0)
    for k in (2, 2.0, np.int32(2), np.float64(2.0)):
        assert khot.hard_topk(x, k).tolist() == [0, 0, 1, 1]
