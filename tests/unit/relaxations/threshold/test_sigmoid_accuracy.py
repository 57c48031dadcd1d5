"""Accuracy of sigmoid_topk in float32 and half types, up to a million entries, against float64."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit

import khot
from khot.testing import truth
from strategies import random_scores
from strategies.quick_run import costly

pytestmark = pytest.mark.usefixtures("implementation")

# |y − y*| ≤ C·eps·(y* + y*(1 − y*)(|logit y*| + log n)) + 1e-34: see strategies/known_sigmoid.py for where
# it comes from. Scores more than 80 τ below the budget's end may weigh nothing. Measured: C = 0.83 at
# most in torch operations; 2 leaves room for other implementations of exp.
C, FLOOR = 2, 1e-34
MILLION = 1_000_000
scores = partial(random_scores.scores, dtype=torch.float32)


def logits(x: np.ndarray, k: float, temperature: float = 1.0) -> np.ndarray:
    """(x + c)/τ in float64, with Σσ − k summed from the distances to 0 and 1, which do not cancel."""
    z = x.astype(np.float64) / temperature

    def excess(c: float) -> float:
        a = z + c
        tail = expit(-np.abs(a))
        return float(np.count_nonzero(a > 0) - k + np.where(a > 0, -tail, tail).sum())

    middle = math.log(k / (len(x) - k))
    return z + brentq(excess, middle - z.max() - 1, middle - z.min() + 1, xtol=1e-13, rtol=1e-15)


def assert_accurate(y: torch.Tensor, a: np.ndarray) -> None:
    info = torch.finfo(y.dtype)
    expected = expit(a)
    size = expected + expected * expit(-a) * (np.abs(a) + math.log(len(a)))
    error = np.abs(y.double().numpy() - expected)
    worst = (np.maximum(error - FLOOR, 0) / (info.eps * np.maximum(size, 1e-300))).max()
    assert worst <= C, f"C = {worst:.3g}"


def test_the_float64_solution_is_the_truth():
    x = scores(20_000).numpy()
    for k in (1, 0.5, 19_999):
        np.testing.assert_allclose(expit(logits(x, k)), truth.sigmoid(x, k), rtol=1e-12)


@pytest.mark.parametrize("k", [costly(1), 1000, costly(MILLION // 2), MILLION - 1])
def test_a_million_entries(k):
    x = scores(MILLION)
    y = khot.sigmoid_topk(x, k)
    assert_accurate(y, logits(x.numpy(), k))
    assert abs(y.double().sum().item() - k) <= 1e-5 * k


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("k", [0.01, 1, 37.5, 499, 499.5])
def test_rows_of_any_scale(k, scale):
    for seed in range(4):
        x = scores(500, spread=scale, seed=seed)
        assert_accurate(khot.sigmoid_topk(x, k), logits(x.numpy(), float(np.float32(k))))


@pytest.mark.parametrize(
    ("dtype", "every"), [(torch.float32, 6), costly(torch.float32, 1), (torch.float64, 1)]
)
@pytest.mark.parametrize("n", [2, 3, 5, 8, 40])
def test_rows_so_wide_that_no_score_is_near_a_guess(n, dtype, every):
    """Where every slope is tiny a weight may be missing altogether, whatever the size of the steps says."""
    for seed, spread in enumerate((10.0, 30.0, 100.0, 200.0, 300.0, 500.0, 1000.0)):
        x = scores(60 * n, spread=spread, seed=seed).to(dtype).reshape(60, n)
        for k in {1, n // 2, n - 1, n - 0.75, 0.04}:
            y = khot.sigmoid_topk(x, k)
            assert (y.sum(-1) - k).abs().max() <= 4 * n * torch.finfo(dtype).eps
            if dtype == torch.float32:
                for row, scored in zip(y[::every], x[::every].numpy(), strict=True):
                    assert_accurate(row, logits(scored, float(np.float32(k))))


@pytest.mark.parametrize("offset", [1e3, -1e3])
@pytest.mark.parametrize("k", [1, 30, 250.5, 1999])
def test_a_common_offset_costs_no_digits(k, offset):
    """The scores in float32, offset and all, are the problem: nothing is rounded at their size."""
    for n in (64, 500, 2000, 40_000):
        if k < n:
            x = scores(n) + offset
            assert_accurate(khot.sigmoid_topk(x, k), logits(x.numpy(), k))


@pytest.mark.parametrize("k", [8, MILLION - 1])
def test_gradient_of_a_million_entries(k):
    """Where y rounds to 1, y(1 − y) would lose 1 % of the gradient."""
    x = scores(MILLION, seed=1).requires_grad_()
    direction = scores(MILLION, seed=2)
    (grad,) = torch.autograd.grad(khot.sigmoid_topk(x, k), x, direction)
    a = logits(x.detach().numpy(), k)
    w, v = expit(a) * expit(-a), direction.double().numpy()
    mean = (w * v).sum() / w.sum()
    relative = np.abs(grad.double().numpy() - w * (v - mean)) / (w * (np.abs(v) + abs(mean)))
    assert relative.max() <= 1e-4


@pytest.mark.parametrize("weight", [1e-5, 1e-12, 1e-16])
def test_small_weights_of_nearly_hard_rows_keep_their_digits(weight):
    """Two scores, logit(w) apart from the threshold in between; with a learned budget the gradient too."""
    half = -math.log(weight)
    x = torch.tensor([half, -half], requires_grad=True)
    y = khot.sigmoid_topk(x, torch.tensor(1.0, requires_grad=True))
    exact = float(expit(-(x[0].item() - x[1].item()) / 2))
    allowed = C * 2.0**-23 * (1 + half + math.log(2))
    assert y[1].item() == pytest.approx(exact, rel=allowed, abs=0)
    assert y[0].item() == pytest.approx(1 - exact, rel=2.0**-23)
    # w₀ = w₁ = y₀y₁, so the Jacobian is half of that times [[1, −1], [−1, 1]]
    (grad,) = torch.autograd.grad(y[1], x)
    both = exact * (1 - exact) / 2
    assert grad.tolist() == pytest.approx([-both, both], rel=4 * allowed, abs=0)


def test_tiny_weights_below_a_full_row():
    """k = 3 with three scores far above a crowd: each of the crowd gets its small share, to all digits."""
    x = torch.cat([torch.full((3,), 25.0), scores(1000, spread=0.1)])
    assert_accurate(khot.sigmoid_topk(x, 3), logits(x.numpy(), 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [0.5, 1, 2, 2.5])
def test_three_ties_at_1e30(k, dtype):
    """One float cannot hold the threshold: beside 1e30 there is nothing nearer than 1e14."""
    x = torch.full((3,), 1e30, dtype=dtype)
    y = khot.sigmoid_topk(x, k)
    torch.testing.assert_close(y, torch.full_like(y, k / 3), rtol=4 * torch.finfo(dtype).eps, atol=0)
    beside = khot.sigmoid_topk(torch.cat([x, -x]), k)
    torch.testing.assert_close(beside[:3], y, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert not beside[3:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_the_rounded_float32(dtype):
    """Computed in float32 and rounded once: half a unit in the last place, from the exact weights."""
    x = scores(300, spread=2.0).to(dtype)
    y = khot.sigmoid_topk(x, 20)
    expected = expit(logits(x.double().numpy(), 20))
    error = np.abs(y.double().numpy() - expected)
    assert (error <= 0.51 * torch.finfo(dtype).eps * expected + 1e-7).all()
    assert y.dtype == dtype


def test_float64_is_as_accurate_as_the_truth():
    generator = torch.Generator().manual_seed(3)
    for scale in (1e-2, 1.0, 20.0):
        for k in (0.3, 4, 11.75):
            x = scale * torch.randn(12, generator=generator, dtype=torch.float64)
            expected = truth.sigmoid(x.numpy(), k)
            size = expected * (1 + np.abs(np.log(expected)) + math.log(12))
            error = np.abs(khot.sigmoid_topk(x, k).numpy() - expected)
            assert (error <= 4 * 2.0**-52 * size).all()
