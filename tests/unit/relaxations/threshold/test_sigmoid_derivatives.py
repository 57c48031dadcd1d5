"""Derivatives of sigmoid_topk in scores, budget and temperature, as dense matrices and in use."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit

import khot

pytestmark = pytest.mark.usefixtures("implementation")

K, TAU = 2.75, 0.6
X = np.array([1.3, -0.2, 0.4, 2.0, -1.1, 0.5])


def closed_form(x: np.ndarray, k: float, temperature: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The Jacobians in x, k and τ, from a threshold found by brentq."""
    c = brentq(lambda c: expit((x + c) / temperature).sum() - k, -50, 50, xtol=1e-15, rtol=1e-15)
    y = expit((x + c) / temperature)
    w = y * (1 - y)
    in_x = (np.diag(w) - np.outer(w, w) / w.sum()) / temperature
    return in_x, w / w.sum(), -in_x @ x / temperature


def leaves() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.tensor(X, requires_grad=True),
        torch.tensor(K, dtype=torch.float64, requires_grad=True),
        torch.tensor(TAU, dtype=torch.float64, requires_grad=True),
    )


def weights(x, k, temperature):
    return khot.sigmoid_topk(x, k, temperature=temperature)


def test_dense_jacobians():
    by_autograd = torch.autograd.functional.jacobian(weights, leaves())
    for mine, expected in zip(by_autograd, closed_form(X, K, TAU), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, atol=1e-13)


def test_dense_jacobians_in_forward_mode():
    x, k, temperature = (leaf.detach() for leaf in leaves())
    by_forward = torch.func.jacfwd(weights, argnums=(0, 1, 2))(x, k, temperature)
    for mine, expected in zip(by_forward, closed_form(X, K, TAU), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, atol=1e-13)


def test_forward_mode_adds_the_directions_of_all_arguments():
    in_x, in_k, in_t = closed_form(X, K, TAU)
    point = tuple(leaf.detach() for leaf in leaves())
    direction = (
        torch.linspace(-1, 1, 6, dtype=torch.float64),
        torch.tensor(0.3).double(),
        torch.tensor(-2.0).double(),
    )
    _, tangent = torch.func.jvp(weights, point, direction)
    expected = in_x @ direction[0].numpy() + 0.3 * in_k - 2.0 * in_t
    np.testing.assert_allclose(tangent.numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2.5, 5.9])
def test_jacobian_is_symmetric_semidefinite_and_keeps_the_sum(k):
    jacobian = torch.autograd.functional.jacobian(lambda x: khot.sigmoid_topk(x, k), torch.tensor(X))
    assert (jacobian - jacobian.T).abs().max() <= 1e-15
    assert torch.linalg.eigvalsh(jacobian).min() >= -1e-15
    assert jacobian.sum(-1).abs().max() <= 1e-15
    assert jacobian.abs().max() > 1e-3


def test_budget_gradient_sums_to_one():
    _, k, _ = leaves()
    (grad,) = torch.autograd.grad(khot.sigmoid_topk(torch.tensor(X), k).sum(), k)
    assert abs(grad.item() - 1) <= 1e-14


def test_second_derivatives_in_budget_and_temperature():
    """d²y/dk², d²y/dkdτ and d²y/dτ² against central differences of the closed form."""
    direction = np.linspace(-1, 2, 6)
    x, k, temperature = leaves()
    first = torch.autograd.grad(
        weights(x, k, temperature) @ torch.tensor(direction), (k, temperature), create_graph=True
    )
    second = [torch.autograd.grad(g, (k, temperature), retain_graph=True) for g in first]
    h = 1e-5
    for column, (dk, dt) in enumerate([(h, 0), (0, h)]):
        ahead, behind = closed_form(X, K + dk, TAU + dt), closed_form(X, K - dk, TAU - dt)
        for line, (a, b) in enumerate(zip(ahead[1:], behind[1:], strict=True)):
            expected = (a - b) @ direction / (2 * h)
            assert second[line][column].item() == pytest.approx(expected, abs=1e-8)


def test_third_derivative_in_the_budget():
    """Against central differences of the second."""

    def second(k):
        k = torch.tensor(k, dtype=torch.float64, requires_grad=True)
        y = khot.sigmoid_topk(torch.tensor(X), k)[0]
        (first,) = torch.autograd.grad(y, k, create_graph=True)
        (grad,) = torch.autograd.grad(first, k, create_graph=True)
        return k, grad

    k, grad = second(2.3)
    (third,) = torch.autograd.grad(grad, k)
    h = 1e-5
    difference = (second(2.3 + h)[1] - second(2.3 - h)[1]).item() / (2 * h)
    assert third.item() == pytest.approx(difference, abs=1e-7)


def test_gradient_descent_on_the_budget_finds_it():
    """Only k is learned; the weights of the planted k are the target."""
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = khot.sigmoid_topk(x, 5.3)
    k = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([k], lr=2.0)
    for _ in range(100):
        optimiser.zero_grad()
        (khot.sigmoid_topk(x, k) - target).square().sum().backward()
        optimiser.step()
    assert k.item() == pytest.approx(5.3, abs=1e-6)


def test_gradient_descent_on_the_temperature_finds_it():
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = khot.sigmoid_topk(x, 5, temperature=0.35)
    log_temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([log_temperature], lr=0.5)
    for _ in range(200):
        optimiser.zero_grad()
        (khot.sigmoid_topk(x, 5, temperature=log_temperature.exp()) - target).square().sum().backward()
        optimiser.step()
    assert log_temperature.exp().item() == pytest.approx(0.35, abs=1e-6)


def test_gradient_per_row_of_budget_and_temperature():
    """k of shape (3, 1) and τ of shape (2,) on a batch of (3, 2): gradients have their shapes, and values."""
    x = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    k = torch.tensor([[1.0], [2.5], [5.0]], dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    y = khot.sigmoid_topk(x, k, temperature=temperature)
    direction = torch.arange(7, dtype=torch.float64)
    of_k, of_temperature = torch.autograd.grad((y @ direction).sum(), (k, temperature))
    expected_k, expected_t = np.zeros((3, 1)), np.zeros(2)
    for i in range(3):
        for j in range(2):
            _, in_k, in_t = closed_form(x[i, j].numpy(), k[i, 0].item(), temperature[j].item())
            expected_k[i, 0] += in_k @ direction.numpy()
            expected_t[j] += in_t @ direction.numpy()
    np.testing.assert_allclose(of_k.numpy(), expected_k, atol=1e-11)
    np.testing.assert_allclose(of_temperature.numpy(), expected_t, atol=1e-11)


def test_infinite_and_excluded_entries_have_no_gradient_and_do_not_disturb():
    """The gradient of the finite entries is that of the row without the others, for x, k and τ."""
    inf = np.inf
    x = torch.tensor([inf, *X[:3], -inf, *X[3:], 5.0], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True] * 8 + [False])
    finite = [1, 2, 3, 5, 6, 7]
    _, k, temperature = leaves()
    budget = k + 1
    direction = torch.linspace(1, 3, 9, dtype=torch.float64)
    y = khot.sigmoid_topk(x, budget, temperature=temperature, mask=mask)
    grad, of_k, of_t = torch.autograd.grad((y * direction).sum(), (x, k, temperature))
    in_x, in_k, in_t = closed_form(X, K, TAU)
    v = direction[finite].numpy()
    np.testing.assert_allclose(grad[finite].numpy(), in_x @ v, atol=1e-12)
    assert of_k.item() == pytest.approx(in_k @ v, abs=1e-12)
    assert of_t.item() == pytest.approx(in_t @ v, abs=1e-12)
    assert grad[0].abs() <= 1e-300  # +inf
    assert (grad[[4, 8]] == 0).all()


@pytest.mark.parametrize("create_graph", [False, True])
def test_an_infinite_gradient_where_a_weight_cannot_move_does_no_harm(create_graph):
    """log(y) of a masked row has the gradient 1/0 at what is excluded: 0·∞ must not spread."""
    x = torch.tensor([*X, 3.0], requires_grad=True)
    mask = torch.tensor([True] * 6 + [False])
    y = khot.sigmoid_topk(x, K, temperature=TAU, mask=mask)
    (grad,) = torch.autograd.grad(torch.log(y).sum(), x, create_graph=create_graph)
    expected = closed_form(X, K, TAU)[0] @ (1 / y.detach()[:6].numpy())
    np.testing.assert_allclose(grad.detach()[:6].numpy(), expected, atol=1e-12)
    assert grad[6] == 0


@pytest.mark.parametrize("scale", [1.0, 2.0**100])
def test_temperature_gradient_does_not_depend_on_a_shift(scale):
    """grad_τ = −⟨x − m, grad_x⟩/τ for any m: offsets do not overflow or cancel."""
    x = torch.tensor([3.0, 1.0, 0.0, -2.0], dtype=torch.float64)
    grads = []
    for shift in (0.0, 2.0**40):
        temperature = torch.tensor(2.0 * scale, dtype=torch.float64, requires_grad=True)
        y = khot.sigmoid_topk((x + shift) * scale, 1.5, temperature=temperature)
        grads.append(torch.autograd.grad(y[0], temperature)[0].item() * scale)
    assert grads[0] == pytest.approx(closed_form(x.numpy(), 1.5, 2.0)[2][0], rel=1e-12)
    assert grads[1] == pytest.approx(grads[0], rel=1e-12)


def test_backward_twice_gives_the_same_and_changes_nothing():
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(3)).requires_grad_()
    before = x.detach().clone()
    k, temperature = torch.full((5,), 2.5, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    y = khot.sigmoid_topk(x, k, temperature=temperature)
    value = y.detach().clone()
    direction = torch.randn(5, 9, generator=torch.Generator().manual_seed(4))
    kept = direction.clone()
    inputs = (x, k, temperature)
    first = torch.autograd.grad(y, inputs, direction, retain_graph=True)
    second = torch.autograd.grad(y, inputs, direction, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(x, before)
    assert torch.equal(y, value)
    assert torch.equal(direction, kept)
    assert (k == 2.5).all()
    assert temperature == 0.5


def test_changing_the_result_in_place_is_right_or_an_error():
    """Never a silently wrong gradient, whatever backward needs."""
    x = torch.tensor(X, requires_grad=True)
    direction = torch.arange(6, dtype=torch.float64)
    y = khot.sigmoid_topk(x, K, temperature=TAU)
    y.mul_(2)
    try:
        (grad,) = torch.autograd.grad(y @ direction, x)
    except RuntimeError:  # torch noticed: a tensor that backward needs was changed
        return
    expected = 2 * closed_form(X, K, TAU)[0] @ direction.numpy()
    np.testing.assert_allclose(grad.numpy(), expected, atol=1e-13)


def test_gradient_with_a_graph_is_the_gradient_without():
    x = torch.randn(4, 11, generator=torch.Generator().manual_seed(6), dtype=torch.float64).requires_grad_()
    y = khot.sigmoid_topk(x, 3).square().sum()
    (plain,) = torch.autograd.grad(y, x, retain_graph=True)
    (with_graph,) = torch.autograd.grad(y, x, create_graph=True)
    assert with_graph.requires_grad
    torch.testing.assert_close(plain, with_graph.detach(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("hard", [False, True])
def test_hard_and_soft_have_the_same_gradient_in_all_arguments(hard):
    x, _, temperature = leaves()
    k = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    y = khot.sigmoid_topk(x, k, temperature=temperature, hard=hard)
    direction = np.linspace(0, 1, 6)
    grads = torch.autograd.grad(y @ torch.tensor(direction), (x, k, temperature))
    for mine, jacobian in zip(grads, closed_form(X, 2.0, TAU), strict=True):
        np.testing.assert_allclose(mine.numpy(), direction @ jacobian, atol=1e-13)
