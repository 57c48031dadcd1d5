"""The kernel of the sparse gate of norms between 1 and 2 against extended precision, and its Jacobian."""

import math

import numpy as np
import pytest
import torch

from khot.kernels import cpu, loader
from khot.testing.truth import sparse
from strategies.instruction_sets import every_instruction_set
from strategies.quick_run import costly, in_turn

pytestmark = pytest.mark.usefixtures("library")

DTYPES = [torch.float32, torch.float64]
INF = math.inf

dtypes = pytest.mark.parametrize("dtype", DTYPES)
NORMS = [1.1, 1.25, 4 / 3, 1.5, 1.7]
each_norm = pytest.mark.parametrize(("norm", "dtype"), in_turn(NORMS, DTYPES))


def gaussian(shape, dtype, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def weights(x, k, temperature=1.0, norm=1.5, mask=None):
    y, state = cpu.gated_topk("sparse", x, k, temperature, mask, norm=norm, state=True)
    assert state is not None
    return y, state


def assert_true(y, x, k, temperature=1.0, norm=1.5):
    """|y − y*| ≤ 2 eps (y* + w*), and what a rounding of the argument makes of a weight that should be 0.

    The argument is within (0, 1), so that its rounding is amplified by the slope w* = p y*^(1 − 1/p) alone.
    A weight too small for a normal number may be 0.
    """
    eps, tiny = torch.finfo(x.dtype).eps, torch.finfo(x.dtype).tiny
    n, p = x.shape[-1], 1 / (norm - 1)
    scores, mine = (tensor.reshape(-1, n).double().numpy() for tensor in (x, y))
    if np.ndim(k):
        right = np.stack([sparse(*problem, norm) for problem in zip(scores, k, temperature, strict=True)])
    else:
        right = sparse(scores, k, temperature, norm)
    allowed = 2 * eps * (right + p * right ** (1 - 1 / p)) + (4 * eps) ** p + tiny
    assert np.all(np.abs(mine - right) <= allowed)


CASES = {
    "short": ((5, 64), 8, 1.0, 1.0),
    "odd": ((4, 45), 5.5, 1.0, 0.7),
    "one over": ((5, 9), 8, 1.0, 1.0),
    "wide": ((2, 300), 12, 40.0, 1.0),
    "very wide": ((2, 300), 12.25, 1e6, 1.0),
    "nearly all": ((1, 1100), 1099, 1.0, 1.0),
    "half": ((1, 1100), 550.5, 1.0, 0.05),
    "soft": ((1, 5000), 1200, 1.0, 20.0),
    "flat": ((2, 200), 3, 1e-4, 1.0),
    "next to nothing": ((2, 200), 1e-5, 1.0, 1.0),
    "pair": ((5, 2), 1, 1.0, 1.0),
}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("norm", "case", "dtype"), in_turn(NORMS, CASES, DTYPES))
def test_equals_truth(case, dtype, norm):
    shape, k, scale, temperature = CASES[case]
    x = gaussian(shape, dtype, scale=scale)
    before = x.clone()
    y, state = weights(x, k, temperature, norm)
    assert_true(y, x, k, temperature, norm)
    assert torch.equal(state, y)
    torch.set_num_threads(2)
    assert torch.equal(weights(x, k, temperature, norm)[0], y)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("norm", "make", "dtype"),
    in_turn([1.1, 1.5, 1.7], ["cauchy", "levels", "offset", "outlier", "exponential", "sorted"], DTYPES),
)
def test_hostile_rows(make, dtype, norm):
    x = gaussian((1, 400), torch.float64)
    x = {
        "cauchy": torch.tan(1.55 * torch.sin(3 * x)),
        "levels": (2 * x).round() / 4,
        "offset": x + 1e3,
        "outlier": torch.where(torch.arange(400) == 5, 1e30, x),
        "exponential": -torch.log(torch.special.ndtr(x).clamp(1e-12, 1 - 1e-12)) * 3,
        "sorted": x.sort(-1, descending=True).values,
    }[make].to(dtype)
    for k in (1, 3.5, 200, 399):
        assert_true(weights(x, k, 1.0, norm)[0], x, k, 1.0, norm)


@each_norm
def test_budget_and_temperature_per_row(norm, dtype):
    n = 200
    x = gaussian((7, n), dtype)
    k = torch.tensor([1.0, 2.5, n - 1.0, n / 2, 3.0, n - 0.5, 0.25], dtype=torch.float64)
    temperature = torch.tensor([1.0, 0.1, 3.0, 0.5, 20.0, 1.0, 1.0], dtype=dtype)
    y, _ = weights(x, k.unsqueeze(-1), temperature.unsqueeze(-1), norm)
    assert_true(y, x, k.numpy(), temperature.double().numpy(), norm)
    for r in range(7):
        assert torch.equal(weights(x[r : r + 1], float(k[r]), float(temperature[r]), norm)[0][0], y[r])


@each_norm
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("n", [30, 3000])
def test_mask_is_as_if_the_entries_were_not_there(n, norm, dtype):
    x = gaussian((4, n), dtype)
    mask = torch.rand(4, n, generator=torch.Generator().manual_seed(1)) < 0.7
    y, state = weights(x, 5, 1.0, norm, mask)
    assert torch.equal(y, weights(x.masked_fill(~mask, -INF), 5, 1.0, norm)[0])
    assert not y[~mask].any()
    assert not state[~mask].any()
    assert_true(y[0, mask[0]], x[0, mask[0]], 5, 1.0, norm)


@each_norm
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("row", "k", "expected"),
    [
        ([INF, INF, INF, 0.0], 2, [2 / 3, 2 / 3, 2 / 3, 0.0]),
        ([INF, INF, 1.0, 0.0], 2, [1.0, 1.0, 0.0, 0.0]),
        ([INF, 0.0, 0.0, -INF], 2, [1.0, 0.5, 0.5, 0.0]),
        ([-INF, 1.0, -INF, 2.0], 2, [0.0, 1.0, 0.0, 1.0]),
        ([-INF, -INF, -INF, -INF], 1, [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0, 4.0], 0, [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0, 4.0], 4, [1.0, 1.0, 1.0, 1.0]),
        ([3.0, 2.0, 1.0, 0.0], 2, [1.0, 1.0, 0.0, 0.0]),  # gaps of τ: hard, without a root
        ([9.0, 9.0, 0.0, 0.0], 2, [1.0, 1.0, 0.0, 0.0]),
        ([9.0, 9.0, 0.0, 0.0], 3, [1.0, 1.0, 0.5, 0.5]),
        ([3e38, 3e38, 3e38, -3e38], 1, [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([3e38, 0.0, -3e38, -3e38], 1.5, [1.0, 0.5, 0.0, 0.0]),
    ],
)
def test_known_answers_at_the_edges(row, k, expected, norm, dtype):
    y, state = weights(torch.tensor([row], dtype=dtype), k, 1.0, norm)
    right = torch.tensor([expected], dtype=dtype)
    torch.testing.assert_close(y, right, rtol=4 / (norm - 1) * torch.finfo(dtype).eps, atol=0)
    assert ((y == 0) == (right == 0)).all()
    assert ((y == 1) == (right == 1)).all()
    settled = not 0 < k < sum(score > -INF for score in row) or row.count(INF) >= k
    assert not state.any() if settled else torch.equal(state, y)


@dtypes
@pytest.mark.parametrize("norm", [1 + 1e-15, 1.0001, 1.01, 1.999, 1.9999999999999998])
def test_extreme_norms_give_weights_with_the_right_sum(norm, dtype):
    x = gaussian((5, 300), dtype)
    for k in (0.5, 1, 7.5, 299):
        y, _ = weights(x, k, 1.0, norm)
        assert ((y >= 0) & (y <= 1)).all()
        if norm > 1.001:
            p = 1 / (norm - 1)
            assert ((y.double().sum(-1) - k).abs() <= 2 * (1 + p) * torch.finfo(dtype).eps * k).all()


@dtypes
def test_nan_stays_in_its_row(dtype):
    x = gaussian((3, 200), dtype)
    expected, _ = weights(x, 2)
    x[1, 100] = float("nan")
    y, state = weights(x, 2)
    assert y[1].isnan().all()
    assert state[1].isnan().all()
    assert torch.equal(y[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_do(shape):
    y, state = weights(torch.empty(shape), 0.0)
    assert y.shape == state.shape == shape


def test_smallest_temperature():
    y, _ = weights(torch.tensor([[1.0, 3.0, 2.0, 3.0]]), 1, 1e-45)
    torch.testing.assert_close(y, torch.tensor([[0.0, 0.5, 0.0, 0.5]]), rtol=2e-7, atol=0)


@dtypes
@pytest.mark.parametrize("norm", [1.5, 1.7])
@pytest.mark.parametrize("shape", [(513, 64), (3, 40_000), (1, 300_001)])
def test_thread_count_does_not_change_a_bit(shape, norm, dtype):
    x = gaussian(shape, dtype)
    k = shape[-1] / 3
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(weights(x, k, 2.0, norm)[0])
    assert all(torch.equal(result, results[0]) for result in results[1:])


@every_instruction_set
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {}
    for dtype in DTYPES:
        for norm in (4 / 3, 1.5, 1.7):
            for case in ("short", "odd"):
                shape, k, scale, temperature = CASES[case]
                x = gaussian(shape, dtype, scale=scale)
                problems[case, dtype, norm] = (x, k, temperature, norm, gaussian(shape, dtype, 1))
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
results = {{}}
for key, (x, k, t, norm, g) in torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True).items():
    y = cpu.gated_topk("sparse", x, k, t, norm=norm)[0]
    results[key] = y, *cpu.gate_jacobian(y, g, t, "sparse", norm)
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for key, (x, k, temperature, norm, g) in problems.items():
        y, out, mean = results[key]
        assert_true(y, x, k, temperature, norm)
        assert_product(out, mean, y, g, temperature, norm)


@pytest.mark.parametrize("dtype", [torch.float32, costly(torch.float64)])
def test_a_long_row_equals_truth(dtype):
    x = gaussian((1, 40_003), dtype)
    assert_true(weights(x, 1000, 1.0, 1.1)[0], x, 1000, 1.0, 1.1)


@pytest.mark.parametrize("k", [1, 1000, 500_000, 999_999])
def test_a_million_in_float32(k):
    x = gaussian((1, 1_000_000), torch.float32)
    y, _ = weights(x, k)
    assert abs(y.double().sum().item() - k) <= 1e-6 * k
    exact, _ = weights(x.double(), k)  # itself tested above
    assert ((y - exact).abs() <= 4 * torch.finfo(torch.float32).eps).all()


def assert_product(out, mean, y, g, temperature, norm):
    y, g = y.double(), g.double()
    inside = (y > 0) & (y < 1)
    w = torch.where(inside, y ** (2 - norm) / (norm - 1), 0)
    total = w.sum(-1, keepdim=True).clamp_min(1e-300)
    right_mean = torch.where(inside, w * g, 0).sum(-1, keepdim=True) / total
    right = torch.where(inside, w * (g - right_mean) / temperature, 0)
    eps, most = torch.finfo(out.dtype).eps, torch.where(inside, g.abs(), 0).amax(-1, keepdim=True)
    # The power is exp of a rounded logarithm, which may be as large as −log of the smallest weight.
    rounding = 64 * eps * (1 + torch.where(inside, -torch.log(y), 0))
    assert ((mean - right_mean).abs() <= 64 * eps * most).all()
    assert ((out - right).abs() <= rounding * w * (g.abs().nan_to_num(0, 0) + most) / temperature).all()


@each_norm
@pytest.mark.parametrize("shape", [(7, 3), (5, 33), (2, 700), (1, 40_000)])
def test_jacobian_product(shape, norm, dtype):
    y = (3 * gaussian(shape, dtype).abs()).clamp(max=2) / 2  # some are 1
    y[:, ::3] = 0
    g = gaussian(shape, dtype, seed=1)
    g[:, 0] = INF  # at a weight of 0: of no effect
    out, mean = cpu.gate_jacobian(y, g, 0.7, "sparse", norm)
    assert_product(out, mean, y, g, 0.7, norm)
    assert (out[(y == 0) | (y == 1)] == 0).all()


@pytest.mark.parametrize("name", ["sparse_topk_f32", "sparse_topk_f64"])
@pytest.mark.parametrize("norm", [1.0, 2.5, math.nan])
def test_module_checks_the_norm(library, name, norm):
    with pytest.raises(ValueError, match=f"{name}: norm must be above 1 and at most 2"):
        getattr(library, name)(norm, 0, 0, 1.0, 1.0, 0, 0, 0, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [1.25, 4 / 3, 1.5, 2.0])
def test_as_many_as_k_are_exactly_one(norm, dtype):
    """Also where a search of the root comes as near to them as rounding lets it."""
    generator = torch.Generator().manual_seed(0)
    for n in (3, 6, 12):
        x = torch.randn(4000, n, generator=generator, dtype=torch.float64).to(dtype)
        allowed = torch.rand(4000, n, generator=generator) < 0.6
        k = allowed.sum(-1, keepdim=True).double()
        for temperature in (1.0, 30.0):
            y, state = cpu.gated_topk("sparse", x, k, temperature, allowed, norm=norm, state=True)
            assert torch.equal(y, allowed.to(dtype))
            product, _ = cpu.gate_jacobian(state, torch.randn_like(x), temperature, "sparse", norm)
            assert not product.any()
