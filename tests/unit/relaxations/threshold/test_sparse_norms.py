"""sparse_topk of norms between 1 and 2: values and derivatives, by the kernels and in torch."""

import numpy as np
import pytest
import torch

import khot
from khot.testing.truth import sparse
from strategies.quick_run import in_turn

norms = pytest.mark.parametrize("norm", [1.1, 4 / 3, 1.5, 1.7])


def scores(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.usefixtures("implementation")
@norms
@pytest.mark.parametrize(("k", "dtype"), in_turn([0.3, 1, 5.5, 20, 39], [torch.float32, torch.float64]))
def test_value_and_gradient_are_those_of_extended_precision(k, norm, dtype):
    """The Jacobian is (diag w − w wᵀ/Σw)/τ with w = y^{2−q}/(q − 1) inside (0, 1)."""
    temperature, p = 0.6, 1 / (norm - 1)
    x = scores((4, 40), dtype)
    x[1] += 1e3
    x[2] = x[2].round()
    x[3, ::7] = -torch.inf
    x[3, 3] = torch.inf if k > 1 else x[3, 3]
    x.requires_grad_()
    g = scores((4, 40), dtype, seed=1)
    y = khot.sparse_topk(x, k, norm=norm, temperature=temperature)
    (found,) = torch.autograd.grad(y, x, g)
    tau = float(torch.tensor(temperature, dtype=dtype))
    eps = torch.finfo(dtype).eps
    for r in range(4):
        row = x[r].detach().double().numpy()
        open_ = np.isfinite(row)
        if k >= (row > -np.inf).sum():
            continue
        right = np.where(row == np.inf, 1.0, 0.0)
        right[open_] = sparse(row[open_], k - (row == np.inf).sum(), tau, norm)
        np.testing.assert_allclose(y[r].detach().numpy(), right, rtol=0, atol=8 * eps * (p + k))
        # Of the weights as they are: the slope at a weight of rounding size is no rounding error.
        mine = y[r].detach().double().numpy()
        inside = open_ & (mine > 0) & (mine < 1)
        w = np.where(inside, np.where(inside, mine, 1) ** (2 - norm) / (norm - 1), 0)
        gr = g[r].double().numpy()
        product = w * (gr - (w * gr).sum() / max(w.sum(), 1e-300)) / tau
        np.testing.assert_allclose(found[r].numpy(), product, rtol=0, atol=400 * eps * p)


@pytest.mark.usefixtures("implementation")
@norms
def test_gradcheck(norm):
    """In x, k and the temperature, where no weight is about to become 0 or 1."""
    x = torch.tensor([[1.9, 0.55, 0.4, 0.3, -1.6]], dtype=torch.float64, requires_grad=True)
    k = torch.tensor([1.7], dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)

    def weights(x, k, temperature):
        return khot.sparse_topk(x, k, norm=norm, temperature=temperature)

    assert torch.autograd.gradcheck(weights, (x, k, temperature))
    assert torch.autograd.gradgradcheck(weights, (x, k, temperature))
