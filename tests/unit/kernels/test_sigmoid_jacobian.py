"""The Jacobian of the sigmoid kernel from weights and thresholds, against the one from residuals."""

import math

import pytest
import torch

from khot.kernels import cpu, loader

pytestmark = pytest.mark.usefixtures("library")

DTYPES = [torch.float32, torch.float64]
INF = math.inf


def gaussian(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def hostile(n, dtype):
    """Rows of every path: ordinary, wide, far, tied, excluded and surely selected, settled."""
    x = gaussian((12, n), torch.float64)
    x[1] *= 50
    x[2] += 1e3
    x[3, ::3] = -INF
    x[4, 1] = INF
    x[5, 2] = 1e30
    x[6] = x[6].round()
    x[7] = 2.0
    x[8] = INF  # settled: they share k
    x[9, 2:] = -INF  # settled: fewer than k are left
    x[10] *= 1e-6
    return x.to(dtype)


def product(x, k, temperature, grad):
    y, thresholds = cpu.sigmoid_with_thresholds(x, k, temperature)
    return y, cpu.sigmoid_jacobian(y, x, thresholds, grad, temperature)


def by_residuals(x, k, temperature, grad):
    y, residual = cpu.gated_topk("logistic", x, k, temperature, state=True)
    return y, cpu.gate_jacobian(residual, grad, temperature)[0], residual


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 64, 100, 300, 3000, 40_003])
@pytest.mark.parametrize("nearly_all", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_equals_the_one_from_residuals(n, nearly_all, temperature, dtype):
    """Within what y − y² may lose up to y = 15/16, a factor of 16, of the terms that are subtracted."""
    x, k = hostile(n, dtype), n - 1.25 if nearly_all else 3
    grad = gaussian(x.shape, dtype, 1)
    before = x.clone(), grad.clone()
    y, out = product(x, k, temperature, grad)
    same, expected, residual = by_residuals(x, k, temperature, grad)
    assert torch.equal(y, same)
    slope = residual.abs() * (1 - residual.abs())
    mean_size = (slope * grad.abs()).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True).clamp_min(1e-300)
    size = slope / temperature * (grad.abs() + mean_size.nan_to_num(0))
    spread = (y.log() - residual.abs().log()).nan_to_num(0, 100, 0).abs()  # of the argument of an exponential
    allowed = torch.finfo(dtype).eps * (64 + 4 * spread) * size
    assert ((out - expected).abs() <= allowed + torch.finfo(dtype).tiny).all()
    assert torch.equal(x, before[0])
    assert torch.equal(grad, before[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [64, 300])
def test_slopes_near_one_keep_their_digits(n, dtype):
    """Two scores, `far` apart: y − y² of the first is 0 in any precision, its slope exp(−far/2) is not."""
    far = 60.0 if dtype == torch.float32 else 200.0
    x = torch.full((2, n), -1e4, dtype=dtype)
    x[:, 0], x[:, 1] = far, 0
    grad = torch.zeros_like(x)
    grad[:, 1] = 1
    y, out = product(x, 1, 1.0, grad)
    slope = math.exp(-far / 2)
    assert (y[:, 0] == 1).all()
    torch.testing.assert_close(out[:, 0], torch.full_like(out[:, 0], -slope / 2), rtol=1e-4, atol=0)
    torch.testing.assert_close(out[:, 1], torch.full_like(out[:, 1], slope / 2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [7, 200, 40_000])
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_gradients_of_settled_weights_are_zero_whatever_comes_back(n, dtype, bad):
    x = gaussian((3, n), dtype)
    x[0] = INF
    x[1, 2:] = -INF
    x[2, ::2] = -INF
    grad = torch.ones_like(x)
    grad[:2] = bad
    grad[2, ::2] = bad
    _, out = product(x, 2, 1.0, grad)
    assert not out[:2].any()
    assert not out[2, ::2].any()
    assert out[2].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [4, 40, 300])
def test_a_weight_of_zero_is_still_though_its_gradient_overflows_beside_the_mean(n, dtype):
    x = gaussian((2, n), dtype) / 8
    x[:, 0] = -1e6
    largest = torch.finfo(dtype).max
    grad = torch.full_like(x, -0.9 * largest)
    grad[:, 0] = 0.9 * largest
    _, out = product(x, 1, 1.0, grad)
    assert not out[:, 0].any()
    assert out.isfinite().all()


def test_nan_stays_in_its_row():
    x = gaussian((3, 40), torch.float32)
    x[1, 7] = math.nan
    _, out = product(x, 2, 1.0, torch.ones_like(x))
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


@pytest.mark.parametrize("shape", [(513, 64), (37, 900), (1, 1_200_001)])
def test_thread_count_does_not_change_a_bit(shape):
    x, grad = gaussian(shape, torch.float32), gaussian(shape, torch.float32, 1)
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(product(x, 7, 1.0, grad)[1])
    assert all(torch.equal(result, results[0]) for result in results[1:])


@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {(n, dtype): hostile(n, dtype) for n in (5, 64, 300) for dtype in DTYPES}
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
results = {{}}
for key, x in torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True).items():
    y, thresholds = cpu.sigmoid_with_thresholds(x, 3.0, 0.5)
    results[key] = cpu.sigmoid_jacobian(y, x, thresholds, x.sin().nan_to_num(1), 0.5)
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for (n, dtype), x in problems.items():
        expected = by_residuals(x.double(), 3.0, 0.5, x.sin().nan_to_num(1).double())[1]
        torch.testing.assert_close(results[n, dtype].double(), expected, rtol=2e-4, atol=2e-6)


def test_a_whole_number_is_a_number_and_no_address():
    x = gaussian((3, 20), torch.float32, 5)
    assert torch.equal(product(x, 3, 1, x)[1], product(x, 3.0, 1.0, x)[1])
