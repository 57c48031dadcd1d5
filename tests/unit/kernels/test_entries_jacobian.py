"""The gradient through k entries equals that through dense weights of float64."""

import pytest
import torch

from khot.kernels import cpu
from khot.kernels.loader import native
from khot.testing import truth

pytestmark = pytest.mark.skipif(native() is None, reason="the kernels are not built")


def dense_product(x: torch.Tensor, k: int, tau: float, dense_grad: torch.Tensor) -> torch.Tensor:
    """(w/τ)(g − Σwg/Σw), w = y(1 − y), from the truth's weights, row by row."""
    rows = []
    for scores, grad in zip(x.double(), dense_grad.double(), strict=True):
        y = torch.as_tensor(truth.TRUTHS["sigmoid"](scores.numpy(), k, tau), dtype=torch.float64).reshape(-1)
        w = y * (1 - y)
        mean = (w * grad).sum() / w.sum() if w.sum() > 0 else 0.0
        rows.append(w / tau * (grad - mean))
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "k"), [(5, 2), (8, 3), (37, 9), (1500, 20)])
@pytest.mark.parametrize("masked", [False, True])
def test_product(dtype: torch.dtype, n: int, k: int, masked: bool):
    torch.manual_seed(0)
    x, tau = torch.randn(4, n, dtype=dtype), 0.7
    mask = torch.rand(4, n) < 0.8 if masked else None
    (indices, weights, _), thresholds = cpu.entries_with_thresholds(x, k, tau, mask, False)
    grad = torch.randn(4, k, dtype=dtype)
    found = cpu.entries_jacobian(x, thresholds, indices, grad, tau, mask)
    allowed = x if mask is None else x.masked_fill(~mask, -torch.inf)
    exists = weights != 0
    dense_grad = torch.zeros_like(x).scatter(-1, indices, torch.where(exists, grad, 0))
    expected = dense_product(allowed, k, tau, dense_grad)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_one_temperature_a_row():
    x = torch.randn(3, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tau = torch.tensor([[0.3], [1.0], [4.0]], dtype=torch.float64)
    (indices, _, _), thresholds = cpu.entries_with_thresholds(x, 4, tau, None, True)
    grad = torch.ones(3, 4, dtype=torch.float64).cumsum(-1)
    found = cpu.entries_jacobian(x, thresholds, indices, grad, tau)
    for row in range(3):
        one = slice(row, row + 1)
        dense = torch.zeros(1, 11, dtype=torch.float64).scatter(-1, indices[one], grad[one])
        torch.testing.assert_close(found[one], dense_product(x[one], 4, float(tau[row]), dense))


def test_rows_that_cannot_move():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, -inf, -inf, 2.0], [inf, inf, 0.0, 1.0], [nan, 1.0, 2.0, 3.0]])
    (indices, _, _), thresholds = cpu.entries_with_thresholds(x, 2, 1.0, None, False)
    found = cpu.entries_jacobian(x, thresholds, indices, torch.full((3, 2), inf), 1.0)
    assert found[:2].eq(0).all()
    assert found[2].isnan().all()


def test_an_infinite_gradient_at_a_missing_place():
    x = torch.tensor([[1.0, 2.0, 3.0, 0.5]])
    mask = torch.tensor([[True, True, False, False]])
    (indices, weights, _), thresholds = cpu.entries_with_thresholds(x, 3, 1.0, mask, False)
    assert weights[0, 2] == 0
    grad = torch.tensor([[1.0, 2.0, torch.inf]])
    found = cpu.entries_jacobian(x, thresholds, indices, grad, 1.0, mask)
    assert found.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_infinite_gradient_does_not_reach_what_cannot_move(dtype):
    """As the dense product has it: 0 where the weight is settled, whatever the mean."""
    x = torch.tensor([[3.0, 2.0, 1.0, -torch.inf, 0.5]], dtype=dtype)
    mask = torch.tensor([[True, True, True, True, False]])
    (indices, _, _), thresholds = cpu.entries_with_thresholds(x, 2, 1.0, mask, False)
    grad = torch.tensor([[torch.inf, 1.0]], dtype=dtype)
    found = cpu.entries_jacobian(x, thresholds, indices, grad, 1.0, mask)
    assert not found[0, 3:].any()
    assert not found[0, :3].isfinite().any()
