"""What the arguments of sigmoid_topk mean: every sentence of its documentation is a test here."""

import math

import numpy as np
import pytest
import torch

import khot
from strategies.random_scores import scores

pytestmark = pytest.mark.usefixtures("implementation")

INF = math.inf


def row(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# k


@pytest.mark.parametrize("number", [int, float, np.int64, np.float64, np.float32])
def test_k_may_be_any_kind_of_number(number):
    x = scores(3, 6)
    assert torch.equal(khot.sigmoid_topk(x, number(2)), khot.sigmoid_topk(x, 2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64])
def test_k_may_be_a_tensor_of_any_real_type(dtype):
    x = scores(3, 6)
    y = khot.sigmoid_topk(x, torch.tensor([1, 2, 5], dtype=dtype))
    torch.testing.assert_close(y.sum(-1), row(1, 2, 5))
    assert y.dtype == x.dtype


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 1), (1, 4), (3, 1), (3, 4)])
def test_k_broadcasts_to_the_batch(shape):
    x = scores(3, 4, 7)
    k = 1 + 5 * torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = khot.sigmoid_topk(x, k)
    for i in range(3):
        for j in range(4):
            alone = khot.sigmoid_topk(x[i, j], k.expand(3, 4)[i, j].item())
            torch.testing.assert_close(y[i, j], alone, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_k_broadcasts_to_the_shape_without_dim(dim):
    x = scores(5, 4, 3)
    batch = (4, 3) if dim == 0 else (5, 3)
    k = torch.arange(1, 1 + math.prod(batch), dtype=torch.float64).reshape(batch) / 5
    torch.testing.assert_close(khot.sigmoid_topk(x, k, dim=dim).sum(dim), k.clamp(max=x.shape[dim]))


@pytest.mark.parametrize(
    ("shape", "k_shape"), [((7,), (1,)), ((4, 7), (3, 1)), ((1, 7), (3,)), ((4, 7), (7,)), ((4, 7), (4, 1))]
)
def test_k_never_enlarges_the_scores(shape, k_shape):
    with pytest.raises(ValueError, match=r"k must broadcast to scores.shape without dim"):
        khot.sigmoid_topk(torch.zeros(shape), torch.ones(k_shape))


@pytest.mark.parametrize("k", [-1e-9, 4.0001, math.nan, INF, -INF])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_k_out_of_range_is_an_error(k, as_tensor):
    with pytest.raises(ValueError, match=r"sigmoid_topk: k must satisfy 0 <= k <= n = 4"):
        khot.sigmoid_topk(torch.zeros(2, 4), torch.tensor(k) if as_tensor else k)


@pytest.mark.parametrize("k", [True, "2", None, [1], 1j, np.array(2), torch.tensor(True)])
def test_k_of_another_type_is_an_error(k):
    with pytest.raises(TypeError, match=r"sigmoid_topk: k must be a .* got"):
        khot.sigmoid_topk(torch.zeros(2, 4), k)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_k_of_zero_gives_zeros_and_k_of_n_ones(as_tensor):
    x = scores(2, 5).requires_grad_()
    for k, expected in ((0, 0.0), (5, 1.0)):
        y = khot.sigmoid_topk(x, torch.tensor(float(k)) if as_tensor else k)
        assert (y == expected).all()
        (grad,) = torch.autograd.grad(y, x, scores(2, 5, seed=1))
        assert not grad.any()


def test_real_budgets_interpolate():
    """Increasing k never lowers a weight, and the sum follows."""
    x = scores(30)
    k = torch.linspace(0, 30, 121, dtype=torch.float64)
    y = khot.sigmoid_topk(x.expand(121, 30), k)
    torch.testing.assert_close(y.sum(-1), k, rtol=1e-12, atol=0)
    assert (y.diff(dim=0) >= 0).all()


def test_a_budget_of_one_is_not_softmax():
    x = row(1, 0, -1)
    assert (khot.sigmoid_topk(x, 1) - torch.softmax(x, -1)).abs().max() > 1e-2
    two = row(1.7, -0.4)  # but for two entries at half the temperature it is
    torch.testing.assert_close(khot.sigmoid_topk(two, 1), torch.softmax(two / 2, -1), rtol=1e-14, atol=0)


# temperature


def test_temperature_divides_the_scores():
    x = scores(4, 9)
    torch.testing.assert_close(
        khot.sigmoid_topk(x, 3, temperature=0.25), khot.sigmoid_topk(4 * x, 3), rtol=1e-13, atol=0
    )


def test_temperature_per_row():
    x = scores(3, 2, 8)
    temperature = torch.tensor([[0.1], [1.0], [10.0]], dtype=torch.float64)
    y = khot.sigmoid_topk(x, 3, temperature=temperature)
    for i, value in enumerate((0.1, 1.0, 10.0)):
        torch.testing.assert_close(y[i], khot.sigmoid_topk(x[i], 3, temperature=value), rtol=1e-13, atol=0)


def test_temperature_goes_from_hard_to_uniform():
    x = scores(20)
    hot, cold = (khot.sigmoid_topk(x, 6, temperature=t) for t in (1e6, 1e-6))
    torch.testing.assert_close(hot, torch.full_like(x, 0.3), rtol=0, atol=1e-5)
    assert torch.equal(cold, khot.hard_topk(x, 6))


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, INF])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_temperature_must_be_positive_and_finite(bad, as_tensor):
    with pytest.raises(ValueError, match=r"temperature must be positive and finite, got"):
        khot.sigmoid_topk(torch.zeros(3), 1, temperature=torch.tensor(float(bad)) if as_tensor else bad)


# mask and infinities


def test_an_excluded_entry_has_exactly_zero_weight_and_gradient():
    x = scores(4, 9).requires_grad_()
    mask = scores(4, 9, seed=1) > -0.5
    y = khot.sigmoid_topk(x, 2, mask=mask)
    (grad,) = torch.autograd.grad(y, x, scores(4, 9, seed=2))
    assert (y[~mask] == 0).all()
    assert (grad[~mask] == 0).all()
    assert (y[mask] > 0).all()
    assert (grad[mask] != 0).all()


@pytest.mark.parametrize("score", [0.0, 1e30, -1e30, INF, -INF, math.nan])
def test_the_score_of_an_excluded_entry_does_not_matter(score):
    mask = torch.tensor([True, False, True, True])
    temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    grads = []
    for value in (score, 0.25):
        x = row(1.0, value, 0.5, -2.0).requires_grad_()
        y = khot.sigmoid_topk(x, 1.5, mask=mask, temperature=temperature)
        grads.append((y.detach(), *torch.autograd.grad(y[0], (x, temperature))))
    for mine, expected in zip(*grads, strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (4, 1), (3, 4, 7), (3, 1, 1)])
def test_mask_broadcasts_to_x(shape):
    x = scores(3, 4, 7)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.7
    full = khot.sigmoid_topk(x, 2, mask=mask.expand(3, 4, 7).contiguous())
    assert torch.equal(khot.sigmoid_topk(x, 2, mask=mask), full)
    minus_infinity = khot.sigmoid_topk(x.masked_fill(~mask, -INF), 2)
    torch.testing.assert_close(full, minus_infinity, rtol=1e-14, atol=0)


@pytest.mark.parametrize("allowed", range(7))
@pytest.mark.parametrize("k", [3, 3.5])
def test_the_budget_saturates(allowed, k):
    """With k or fewer allowed entries each has weight 1 and gradient 0, in every argument."""
    x, budget, temperature = (
        scores(6).requires_grad_(),
        row(k)[0].requires_grad_(),
        row(0.5)[0].requires_grad_(),
    )
    mask = torch.arange(6) < allowed
    y = khot.sigmoid_topk(x, budget, temperature=temperature, mask=mask)
    assert y.sum().item() == pytest.approx(min(k, allowed), abs=1e-12)
    if allowed <= k:
        assert torch.equal(y, mask.double())
        grads = torch.autograd.grad(y, (x, budget, temperature), scores(6, seed=1))
        assert not any(g.any() for g in grads)
    else:
        assert (y[mask] < 1).all()


def test_nothing_allowed_gives_zeros():
    x = scores(2, 5)
    assert not khot.sigmoid_topk(x, 2, mask=torch.zeros(5, dtype=torch.bool)).any()
    assert not khot.sigmoid_topk(torch.full((2, 5), -INF), 2).any()


def test_plus_infinity_is_surely_selected():
    """The finite entries share what is left."""
    x = row(INF, 0.3, INF, -0.2, 1.0)
    y = khot.sigmoid_topk(x, 2.75)
    assert y[0] == y[2] == 1
    torch.testing.assert_close(y[[1, 3, 4]], khot.sigmoid_topk(x[[1, 3, 4]], 0.75), rtol=1e-13, atol=0)


@pytest.mark.parametrize("k", [0.5, 1, 2.5, 3])
def test_more_than_k_infinities_share_equally(k):
    y = khot.sigmoid_topk(row(INF, 5.0, INF, -INF, INF), k)
    torch.testing.assert_close(y, row(k / 3, 0, k / 3, 0, k / 3), rtol=1e-15, atol=0)


def test_infinities_in_one_row_leave_the_others_alone():
    """Saturated, crowded, open and hard rows in one batch are what each is alone."""
    x = scores(6, 8)
    x[1, :5] = INF
    x[2, 2:] = -INF
    x[3] *= 1e30
    x[4, 0], x[4, 1] = INF, -INF
    x[5] = 0
    k = row(3, 3, 3, 3, 3, 3)
    together = khot.sigmoid_topk(x, k)
    alone = torch.stack([khot.sigmoid_topk(one, 3) for one in x])
    torch.testing.assert_close(together, alone, rtol=1e-14, atol=0)
    torch.testing.assert_close(together.sum(-1), row(3, 3, 2, 3, 3, 3), rtol=1e-13, atol=0)


def test_nan_stays_in_its_row():
    x = scores(4, 6).requires_grad_()
    with torch.no_grad():
        clean = khot.sigmoid_topk(x, 2)
        x[2, 3] = math.nan
    y = khot.sigmoid_topk(x, 2)
    assert y[2].isnan().all()
    others = [0, 1, 3]
    torch.testing.assert_close(y[others], clean[others], rtol=1e-14, atol=0)
    (grad,) = torch.autograd.grad(y[others].square().sum(), x)
    assert grad[others].isfinite().all()
    assert grad[others].any()


# dim, shape, dtype, hard


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,), (2, 0, 4)])
def test_empty_batches_and_rows(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = khot.sigmoid_topk(x, 0)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape


def test_the_result_has_the_dtype_of_x_whatever_k_and_temperature_are():
    x = scores(2, 5)
    wide = torch.tensor(2.0, dtype=torch.float64)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert khot.sigmoid_topk(x.to(dtype), wide, temperature=wide).dtype == dtype


def test_the_gradients_have_the_dtypes_of_their_arguments():
    x = scores(2, 5).half().requires_grad_()
    k = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor([1.0, 2.0], dtype=torch.float32, requires_grad=True)
    y = khot.sigmoid_topk(x, k, temperature=temperature)
    grads = torch.autograd.grad(y[:, 0].sum(), (x, k, temperature))
    assert [g.dtype for g in grads] == [torch.float16, torch.float64, torch.float32]
    assert [g.shape for g in grads] == [(2, 5), (), (2,)]


def test_hard_is_the_hard_topk_and_rounds_a_tensor():
    x = scores(3, 7)
    for k in (0, 2, 7):
        assert torch.equal(khot.sigmoid_topk(x, k, hard=True), khot.hard_topk(x, k))
    y = khot.sigmoid_topk(x, row(1.9, 2.2, 4.0), hard=True)
    assert torch.equal(y.sum(-1), row(2, 2, 4))
    with pytest.raises(ValueError, match=r"k must be an integer here, got k = 2.5"):
        khot.sigmoid_topk(x, 2.5, hard=True)


def test_hard_with_masks_and_infinities():
    x = row(INF, 3.0, 9.0, -INF, 1.0, 2.0)
    mask = torch.tensor([True, True, False, True, True, True])
    assert khot.sigmoid_topk(x, 3, mask=mask, hard=True).tolist() == [1, 1, 0, 0, 0, 1]
    assert khot.sigmoid_topk(x, 6, mask=mask, hard=True).tolist() == [1, 1, 0, 0, 1, 1]
    assert khot.sigmoid_topk(x, 3, mask=mask, hard=True, dim=0).sum() == 3
