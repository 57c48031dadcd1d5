"""Inputs on which other soft top-k operators failed, as data: scales, masks, shapes, half types, reports."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit

import khot
from khot.testing import truth

pytestmark = pytest.mark.usefixtures("implementation")

INF, NAN = math.inf, math.nan
REPORTED = {
    # (scores, budget, temperature)
    "torchsort #63: NaN gradient at a small strength": (
        [0.1, 0.3, 0.5, 0.03, 0.2, 0.15, 0.65, 0.7, 0.9],
        3,
        1e-4,
    ),
    "fast-soft-sort #7: three scores": ([0.1, 0.7, 0.2], 1, 1.0),
    "torchsort's first example": ([8.0, 0.0, 5.0, 3.0, 2.0, 1.0, 6.0, 7.0, 9.0], 4, 1.0),
    "fast-soft-sort's first example": ([5.0, 1.0, 2.0], 2, 0.1),
    "mlx #1428: two rows": ([[1.0, 2.0, 6.0, 4.0, 5.0], [9.0, 5.0, 6.0, 7.0, 8.0]], 2, 1.0),
    "times 1e4": ([[1.0, -2.0, 0.5, 0.25]], 2, 1e-4),
    "plus 1e4": ([10001.0, 9998.0, 10000.5, 10000.25], 2, 1.0),
    "plus and times 1e4": ([10010000.0, 9980000.0, 10005000.0, 10002500.0], 2, 1.0),
    "half of them at each end": ([1e4, 1e4, -1e4, -1e4], 2, 1.0),
    "one far above": ([1e4, 0.0, 0.0, 0.0], 2, 1.0),
    "one far below": ([-1e4, 0.0, 0.0, 0.0], 2, 1.0),
    "all ties": ([0.0] * 7, 3, 1.0),
    "all ties but one": ([0.0] * 6 + [1e-3], 3, 1.0),
    "nearly everything": (list(range(10)), 9, 1.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", REPORTED)
def test_reported_inputs(name, dtype):
    values, k, temperature = REPORTED[name]
    x = torch.tensor(values, dtype=dtype).requires_grad_()
    y = khot.sigmoid_topk(x, k, temperature=temperature)
    expected = np.apply_along_axis(
        truth.sigmoid, -1, x.detach().numpy(), k, float(torch.tensor(temperature, dtype=dtype))
    )
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=0, atol=8 * torch.finfo(dtype).eps)
    (grad,) = torch.autograd.grad(-torch.log(y + 1e-10).mean(), x)
    assert grad.isfinite().all()
    torch.testing.assert_close(y.detach().sum(-1), torch.full(y.shape[:-1], float(k), dtype=dtype))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e30])
@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_scaled_and_shifted_scores(scale, shift):
    """(x·scale + shift)/scale is exact here: the weights are those of x, in the float64 that holds it."""
    x = np.arange(-8, 8) / 4.0
    moved = torch.tensor(x * scale + shift, dtype=torch.float64)
    held = (moved.numpy() - shift) / scale  # what rounding left of x
    c = brentq(lambda c: expit(held + c).sum() - 5, -50, 50, xtol=1e-15, rtol=1e-15)
    y = khot.sigmoid_topk(moved, 5, temperature=scale)
    np.testing.assert_allclose(y.numpy(), expit(held + c), rtol=0, atol=1e-11 if scale < 1 else 1e-13)


@pytest.mark.parametrize("allowed", [5, 3, 2, 1, 0])
@pytest.mark.parametrize("way", ["mask", "minus infinity"])
def test_more_than_exactly_and_fewer_than_k_allowed(allowed, way):
    """k = 3; the gradient is finite, and zero where the budget saturates."""
    x = torch.tensor([0.3, -0.1, 2.0, 0.7, 0.5, 1.1], dtype=torch.float64)
    keep = torch.arange(6) < allowed
    leaf = (x if way == "mask" else x.masked_fill(~keep, -INF)).clone().requires_grad_()
    y = khot.sigmoid_topk(leaf, 3, mask=keep if way == "mask" else None)
    (grad,) = torch.autograd.grad(y, leaf, torch.arange(6, dtype=torch.float64))
    assert y.detach().sum().item() == pytest.approx(min(3, allowed), abs=1e-12)
    assert grad.isfinite().all()
    assert grad.any() == (allowed > 3)


def test_infinities_and_nan_of_pytorch_16762():
    """One NaN, one number and eight +inf: NaN, as softmax says; without the NaN +inf share the budget."""
    x = torch.full((10,), INF)
    x[3] = 3
    torch.testing.assert_close(khot.sigmoid_topk(x, 1), torch.where(x == INF, 1 / 9, 0.0))
    x[0] = NAN
    assert khot.hard_topk(x, 1).tolist() == [1.0] + [0.0] * 9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 16, 100, 255])
def test_the_sum_of_half_types(dtype, k):
    """To the resolution of the type: eps·k."""
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = khot.sigmoid_topk(x, k)
    assert (y.double().sum(-1) - k).abs().max() <= torch.finfo(dtype).eps * k


@pytest.mark.parametrize("dim", [-1, 2])
def test_middle_dimension_of_one(dim):
    x = torch.randn(
        5, 1, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    y = khot.sigmoid_topk(x, 4, dim=dim)
    assert y.shape == (5, 1, 12)
    torch.testing.assert_close(y[:, 0], khot.sigmoid_topk(x[:, 0], 4), rtol=0, atol=0)
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert grad.shape == x.shape


def test_weights_are_never_above_one():
    """Successive softmaxes reach 2.5 here."""
    x = torch.tensor([[3.0, 0.0, 0.0, 0.0, 0.0], [30.0, 29.9, -30.0, -30.0, -30.0]])
    for k in (1, 2, 3.5, 4):
        y = khot.sigmoid_topk(x, k)
        assert y.max() <= 1
        assert y.min() >= 0


def test_the_jacobian_is_full_not_diagonal():
    jacobian = torch.autograd.functional.jacobian(lambda x: khot.sigmoid_topk(x, 2), torch.arange(4.0))
    off_diagonal = jacobian - torch.diag(jacobian.diagonal())
    assert (off_diagonal[~torch.eye(4, dtype=torch.bool)] < -1e-3).all()
    torch.testing.assert_close(off_diagonal.sum(-1), -jacobian.diagonal())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_half_of_them_at_each_end_of_the_range(dtype):
    largest = torch.finfo(dtype).max
    for size in (1e30, largest):
        x = torch.tensor([size, -size, size, -size], dtype=dtype)
        assert khot.sigmoid_topk(x, 2).tolist() == [1, 0, 1, 0]
        torch.testing.assert_close(khot.sigmoid_topk(x, 1), torch.tensor([0.5, 0, 0.5, 0], dtype=dtype))
        torch.testing.assert_close(khot.sigmoid_topk(x, 3.5), torch.tensor([1, 0.75, 1, 0.75], dtype=dtype))


def test_expanded_and_overlapping_memory():
    """Strides of zero: gradients are added up, memory is not written through."""
    x = torch.tensor([0.5, 1.0, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    direction = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    y = khot.sigmoid_topk(x.expand(3, 4), 2)
    (grad,) = torch.autograd.grad(y, x, direction)
    (expected,) = torch.autograd.grad(khot.sigmoid_topk(x, 2), x, direction.sum(0))
    torch.testing.assert_close(grad, expected, rtol=1e-12, atol=1e-14)
