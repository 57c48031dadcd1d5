"""Rows of which some slopes are too small for a float: derivatives against numbers with any exponent."""

import math

import mpmath
import pytest
import torch

import khot
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("implementation")

INF = math.inf
DTYPES = [torch.float32, torch.float64]
G = [1.0, -1.0, 2.0, 0.5, 3.0]

#: The distance of F to 1 at b > 0, and its slope there.
TAILS = {
    "sigmoid": (lambda b: 1 / (1 + mpmath.exp(b)), lambda b: 1 / (2 + mpmath.exp(b) + mpmath.exp(-b))),
    "laplace": (lambda b: mpmath.exp(-b) / 2, lambda b: mpmath.exp(-b) / 2),
    "normal": (lambda b: mpmath.erfc(b / mpmath.sqrt(2)) / 2, mpmath.npdf),
}
OPERATORS = {"sigmoid": khot.sigmoid_topk, "laplace": khot.laplace_topk, "normal": khot.normal_topk}
operators = pytest.mark.parametrize("name", OPERATORS)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def true_gradients(name, x, k, temperature, g):
    """Of Σ g y, in x, k and τ, by bisection with 40 digits and unbounded exponents."""
    tail, slope = TAILS[name]
    with mpmath.workdps(40):
        z = [mpmath.mpf(v) / temperature for v in x]
        low, high = -max(z) - 100, -min(z) + 100
        for _ in range(150):
            c = (low + high) / 2
            above = sum(v + c > 0 for v in z) - k
            over = above + sum((-1 if v + c > 0 else 1) * tail(abs(v + c)) for v in z)
            low, high = (low, c) if over > 0 else (c, high)
        w = [slope(abs(v + c)) for v in z]
        mean = sum(a * b for a, b in zip(w, g, strict=True)) / sum(w)
        by_x = [a * (b - mean) / temperature for a, b in zip(w, g, strict=True)]
        by_temperature = -sum(a * b for a, b in zip(z, by_x, strict=True))
        return [float(v) for v in by_x], float(mean), float(by_temperature)


def gradients(operator, x, k, temperature, g, dtype):
    leaves = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in (x, k, temperature)]
    y = operator(leaves[0], leaves[1], temperature=leaves[2])
    return [grad.double() for grad in torch.autograd.grad(y, leaves, torch.tensor(g, dtype=dtype))]


def assert_right(name, x, k, temperature, g, dtype):
    right = true_gradients(name, torch.tensor(x, dtype=dtype).tolist(), k, temperature, g)
    close = 2e-5 if dtype == torch.float32 else 1e-9
    for actual, expected in zip(gradients(OPERATORS[name], x, k, temperature, g, dtype), right, strict=True):
        expected = torch.tensor(expected, dtype=torch.float64)
        scale = expected.abs().max().clamp_min(1e-30)
        torch.testing.assert_close(actual, expected, rtol=0, atol=close * scale.item())


@operators
@pytest.mark.parametrize(("far", "dtype", "k"), in_turn([90.0, 1e6, 1e20, 1e30], DTYPES, [1.5, 2.0]))
def test_a_far_score_has_no_say(name, far, k, dtype):
    """Not in the temperature's gradient either, where its slope is multiplied by itself."""
    x = [1.0, 2.0, 3.0, 0.5]
    alone = gradients(OPERATORS[name], x, k - 1, 1.0, G[1:], dtype)
    for score in (far, INF):
        by_x, by_k, by_temperature = gradients(OPERATORS[name], [score, *x], k, 1.0, G, dtype)
        assert abs(by_x[0]) <= 1e-30
        torch.testing.assert_close(by_x[1:], alone[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(by_k, alone[1], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(by_temperature, alone[2], rtol=1e-5, atol=1e-6)


@dtypes
@operators
@pytest.mark.parametrize("gap", [8.0, 20.0, 100.0, 174.0, 3000.0])
def test_nearly_hard_rows(name, gap, dtype):
    """∂y/∂k is a ratio of slopes, right where they all vanish, and shared unevenly by unequal sides."""
    x = [gap / 2 + 0.25, gap / 2, -gap / 2, -gap / 2, -gap / 2 - 0.5]
    right = true_gradients(name, x, 2, 1.0, G)
    actual = gradients(OPERATORS[name], x, 2.0, 1.0, G, dtype)
    torch.testing.assert_close(actual[1].item(), right[1], rtol=2e-5, atol=0)
    tiny = 20 * torch.finfo(dtype).tiny
    for mine, true in ((actual[0], right[0]), (actual[2], right[2])):
        true = torch.tensor(true, dtype=torch.float64)
        torch.testing.assert_close(mine, true, rtol=0, atol=1e-4 * true.abs().max().item() + tiny * (1 + gap))


@dtypes
@pytest.mark.parametrize("name", ["sigmoid", "laplace"])
def test_a_small_slope_over_a_small_temperature_is_a_gradient(name, dtype):
    x = [6e-19, 5e-19, -5e-19, -5.5e-19, -7e-19]
    assert_right(name, x, 2.0, 1e-20, G, dtype)


def test_the_example_of_two():
    for name in OPERATORS:
        by_k = gradients(OPERATORS[name], [50.0, -50.0], 1.0, 1.0, [1.0, 3.0], torch.float32)[1]
        assert by_k == 2, name


@operators
def test_forward_and_second_derivatives_of_nearly_hard_rows(name):
    """Forward mode agrees, and the mixed derivative in k and x is that of shares, once each way."""
    operator = OPERATORS[name]
    x = torch.tensor([200.25, 200.0, -200.0, -200.125, -201.0], dtype=torch.float64)
    k = torch.tensor(2.0, dtype=torch.float64)
    reverse, forward = (
        jacobian(lambda b: operator(x, b))(k) for jacobian in (torch.func.jacrev, torch.func.jacfwd)
    )
    torch.testing.assert_close(forward, reverse)
    torch.testing.assert_close(reverse.sum().item(), 1.0)

    def share(scores):
        return torch.func.jacrev(lambda b: operator(scores, b))(k)

    step = 1e-5
    mixed = torch.func.jacrev(share)(x)
    for i in range(5):
        move = step * torch.nn.functional.one_hot(torch.tensor(i), 5)
        difference = (share(x + move) - share(x - move)) / (2 * step)
        torch.testing.assert_close(mixed[:, i], difference, rtol=1e-4, atol=1e-5)


@dtypes
@pytest.mark.parametrize("name", [*OPERATORS, "sparse"])
def test_a_crowd_at_infinity_is_still(name, dtype):
    """Each has k/m, whatever the scores; a change of k is shared."""
    operator = {**OPERATORS, "sparse": khot.sparse_topk}[name]
    x = torch.tensor([[INF, 1.0, INF, INF], [INF, 2.0, -INF, 1.0]], dtype=dtype, requires_grad=True)
    k = torch.tensor([2.0, 1.0], dtype=dtype, requires_grad=True)
    temperature = torch.tensor(0.01, dtype=dtype, requires_grad=True)
    g = torch.tensor([[1.0, 5.0, 2.0, 6.0], [1.0, 2.0, 3.0, 4.0]], dtype=dtype)
    by_x, by_k, by_temperature = torch.autograd.grad(
        operator(x, k, temperature=temperature), (x, k, temperature), g
    )
    assert not by_x.any()
    assert by_temperature == 0
    torch.testing.assert_close(by_k, torch.tensor([3.0, 1.0], dtype=dtype))


@operators
def test_masked_scores_share_nothing(name):
    x = torch.tensor([[90.0, 300.0, -90.0, 70.0]], dtype=torch.float32)
    mask = torch.tensor([[True, False, True, False]])
    k = torch.tensor([1.0], requires_grad=True)
    g = torch.tensor([[1.0, math.nan, 3.0, INF]])
    (by_k,) = torch.autograd.grad(OPERATORS[name](x, k, mask=mask), k, g)
    assert by_k == 2


@dtypes
@pytest.mark.parametrize("norm", [2.0, 1.9, 1.01])
@pytest.mark.parametrize("n", [7, 2000])
def test_sparse_sums_hold_however_small_the_weights(norm, n, dtype):
    scores = torch.randn(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    above_many = torch.where(torch.arange(n) == 3, 0.5, 1e-6 * scores)
    relative = 1e-5 if dtype == torch.float32 else 1e-9
    for x in (scores, above_many, scores.exp(), (3 * scores).round()):
        for temperature in (1.0, 1e6):
            for k in (1e-6, 0.5, 1.0, 2.0, n - 0.25):
                y = khot.sparse_topk(x.to(dtype), k, norm=norm, temperature=temperature).double()
                assert abs(y.sum().item() - k) <= relative * k, (temperature, k)
