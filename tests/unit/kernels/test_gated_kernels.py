"""The kernels of the threshold family against extended precision, on every path they can take."""

import functools
import math
import multiprocessing
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from khot.kernels import cpu, loader
from khot.testing import truth as slow
from strategies.instruction_sets import every_instruction_set
from strategies.quick_run import costly, in_turn

pytestmark = pytest.mark.usefixtures("library")

DTYPES = [torch.float32, torch.float64]
INF = math.inf


def gaussian(shape, dtype, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


GATES = ["logistic", "laplace", "sparse", "normal"]


@pytest.fixture(params=GATES)
def gate(request):
    return request.param


TRUTHS = {"logistic": slow.sigmoid, "laplace": slow.laplace, "sparse": slow.sparse, "normal": slow.normal}


def assert_normal(mine, state, right, other, eps, tiny):
    """The state is the argument a of Φ, with some ulp of its own; the weight has Φ's and φ(a) times these."""
    known = np.minimum(right, other) > tiny
    assert np.all((np.abs(mine - right) <= 4 * eps + tiny)[~known])
    mine, state, right, other = mine[known], state[known], right[known], other[known]
    a = np.where(right < 0.5, ndtri(right), -ndtri(other))
    rounding = 8 * eps * (np.abs(a) + 2)
    assert np.all(np.abs(state - a) <= rounding)
    assert np.all(np.abs(mine - right) <= 8 * eps * right + np.exp(-(a**2) / 2) * rounding)


@functools.cache
def cached_truth(gate: str, scores: bytes, shape: tuple[int, int], k: float, temperature: float):
    return TRUTHS[gate](np.frombuffer(scores).reshape(shape), k, temperature)


def truth(gate, rows, k, temperature):
    """Of all rows at once where they have one budget and one temperature."""
    if np.ndim(k) or np.ndim(temperature):
        ks, ts = (np.broadcast_to(v, len(rows)) for v in (k, temperature))
        return np.concatenate([truth(gate, rows[i : i + 1], ks[i], ts[i]) for i in range(len(rows))])
    return cached_truth(gate, rows.tobytes(), rows.shape, float(k), float(temperature))


def assert_true(gate, y, state, x, k, temperature=1.0):
    """Within 4 ulp-scaled bounds of the truth.

    |y − y*| ≤ 4 eps (y* + w* (|F⁻¹(y*)| + log n + 2)): the rounding of the weight, and that of its
    argument and of the shift, amplified by the slope w*. The residual, likewise, relative to itself.
    Below `tiny` the exponential may have flushed to 0. The argument of the sparse gate is within (0, 1).
    """
    eps, n = torch.finfo(x.dtype).eps, x.shape[-1]
    tiny = 1e-20 if x.dtype == torch.float32 else 1e-150
    scores, mine, saved = (tensor.reshape(-1, n).double().numpy() for tensor in (x, y, state))
    right = truth(gate, scores, k, temperature)
    if gate == "sparse":
        assert np.all(np.abs(mine - right) <= 4 * eps)
        assert np.array_equal(saved, mine)
        return
    other = truth(gate, -scores, n - k, temperature)  # 1 − y*, by symmetry
    if gate == "normal":
        assert_normal(mine, saved, right, other, eps, tiny)
        return
    with np.errstate(divide="ignore"):
        spread = np.minimum(np.abs(np.log(right) - np.log(other)), 1e4) + math.log(n) + 2
    nearer, signed = np.minimum(right, other), np.where(right > 0.5, -other, right)
    error = np.abs(mine - right)
    assert np.all(error <= 4 * eps * (right + nearer * spread) + tiny)
    error = np.abs(saved - signed)
    either_sign = np.abs(right - 0.5) < 1e-6
    assert np.all((error <= 4 * eps * nearer * (1 + spread) + tiny) | either_sign)


CASES = {
    "short": ((33, 64), 8, 1.0, 1.0),
    "odd": ((7, 45), 5.5, 1.0, 0.7),
    "one over": ((5, 9), 8, 1.0, 1.0),
    "sampled": ((3, 5000), 70, 1.0, 1.0),
    "wide": ((6, 300), 12, 40.0, 1.0),
    "very wide": ((4, 300), 12.25, 1e6, 1.0),
    "nearly all": ((3, 4000), 3999, 1.0, 1.0),
    "half": ((3, 4000), 2000.5, 1.0, 0.05),
    "flat": ((4, 200), 3, 1e-4, 1.0),
    "pair": ((9, 2), 1, 1.0, 1.0),
    "long": ((1, 40_003), 1000, 1.0, 1.0),
    "long and wide": ((1, 40_001), 11, 300.0, 1.0),
}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("gate", "case", "dtype"),
    in_turn(GATES, CASES, DTYPES, left_out=lambda gate, case, _: gate == "normal" and "long" in case),
)
def test_equals_truth(gate, case, dtype):
    shape, k, scale, temperature = CASES[case]
    x = gaussian(shape, dtype, scale=scale)
    before = x.clone()
    y, residual = cpu.gated_topk(gate, x, k, temperature, state=True)
    assert_true(gate, y, residual, x, k, temperature)
    torch.set_num_threads(2)
    assert torch.equal(cpu.gated_topk(gate, x, k, temperature)[0], y)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("gate", "make", "dtype"),
    in_turn(GATES, ["cauchy", "levels", "offset", "outlier", "exponential", "sorted"], DTYPES),
)
def test_hostile_rows(gate, make, dtype):
    x = gaussian((2, 400), torch.float64)
    x = {
        "cauchy": torch.tan(1.55 * torch.sin(3 * x)),
        "levels": (2 * x).round() * 17,
        "offset": x + 1e4,
        "outlier": torch.where(torch.arange(400) == 5, 1e30, x),
        "exponential": -torch.log(torch.special.ndtr(x).clamp(1e-12, 1 - 1e-12)) * 3,
        "sorted": x.sort(-1, descending=True).values,
    }[make].to(dtype)
    for k in (1, 3.5, 200, 399):
        y, residual = cpu.gated_topk(gate, x, k, 1.0, state=True)
        assert_true(gate, y, residual, x, k)
    for k in (1, 200.5):  # so wide that the start is found by counting
        y, residual = cpu.gated_topk(gate, x, k, 0.05, state=True)
        assert_true(gate, y, residual, x, k, 0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_few_scores_sum_to_k(gate, dtype):
    """Where all gates are nearly flat, no step may be taken for the last: rare, so there are many rows."""
    eps = torch.finfo(dtype).eps
    for n, temperature in ((3, 0.3), (3, 0.1), (5, 0.1), (5, 0.03)):
        y, _ = cpu.gated_topk(gate, gaussian((20_000, n), dtype, scale=3.0), 2, temperature)
        assert (y.double().sum(-1) - 2).abs().max() <= 8 * eps


def test_neighbouring_scores_at_a_tiny_temperature(gate):
    """No float32 lies between the two, so the anchor is one of them, and the other far away."""
    x = torch.tensor([[1.0, 1 + 2**-23, -3.0], [1 - 2**-24, 1.0, -3.0]])
    y, _ = cpu.gated_topk(gate, x, 1, 1e-9)
    assert (y - torch.tensor([0.0, 1.0, 0.0])).abs().max() <= 1e-12  # half the gap is 30τ or more


@pytest.mark.parametrize(("gate", "n", "dtype"), in_turn(GATES, [20, 3000], DTYPES))
def test_budget_and_temperature_per_row(gate, n, dtype):
    x = gaussian((7, n), dtype)
    k = torch.tensor([1.0, 2.5, n - 1.0, n / 2, 3.0, n - 0.5, 0.25], dtype=torch.float64)
    temperature = torch.tensor([1.0, 0.1, 3.0, 0.5, 20.0, 1.0, 1.0], dtype=dtype)
    y, residual = cpu.gated_topk(gate, x, k.unsqueeze(-1), temperature.unsqueeze(-1), state=True)
    assert_true(gate, y, residual, x, k.numpy(), temperature.double().numpy())
    for r in range(7):
        alone, _ = cpu.gated_topk(gate, x[r : r + 1], float(k[r]), float(temperature[r]))
        assert torch.equal(alone[0], y[r])


@pytest.mark.parametrize(("gate", "n", "dtype"), in_turn(GATES, [20, 64, 200, 900], DTYPES))
def test_far_scores_disturb_neither_their_row_nor_its_neighbours(gate, n, dtype):
    x = gaussian((19, n), torch.float64)
    x[3] = torch.tan(1.55 * torch.sin(3 * x[3]))
    x[7, ::5] = -INF
    x[11, 2] = 1e30
    x[12] *= 1000
    x[18, : n // 2] -= 50
    x = x.to(dtype)
    k = n // 8
    y, residual = cpu.gated_topk(gate, x, k, 1.0, state=True)
    assert_true(gate, y, residual, x, k)
    for r in range(19):
        alone, _ = cpu.gated_topk(gate, x[r : r + 1], k, 1.0)
        assert torch.equal(alone[0], y[r])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("gate", "n", "dtype"),
    in_turn(GATES, [30, 3000, 40_000], DTYPES, left_out=lambda gate, n, _: gate == "normal" and n > 3000),
)
def test_mask_is_as_if_the_entries_were_not_there(gate, n, dtype):
    x = gaussian((4, n), dtype)
    mask = torch.rand(4, n, generator=torch.Generator().manual_seed(1)) < 0.7
    y, residual = cpu.gated_topk(gate, x, 5, 1.0, mask, state=True)
    by_inf, _ = cpu.gated_topk(gate, x.masked_fill(~mask, -INF), 5, 1.0)
    assert torch.equal(y, by_inf)
    assert (y[~mask] == 0).all()
    still = residual[~mask].abs() > 40 if gate == "normal" else residual[~mask] == 0
    assert still.all()
    for r in range(4 if n < 1000 else 1):
        keep = mask[r]
        assert_true(gate, y[r, keep], residual[r, keep], x[r, keep], 5)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("row", "k", "expected"),
    [
        ([INF, INF, INF, 0.0], 2, [2 / 3, 2 / 3, 2 / 3, 0.0]),
        ([INF, INF, 1.0, 0.0], 2, [1.0, 1.0, 0.0, 0.0]),
        ([INF, 0.0, 0.0, -INF], 2, [1.0, 0.5, 0.5, 0.0]),
        ([-INF, 1.0, -INF, 2.0], 2, [0.0, 1.0, 0.0, 1.0]),
        ([-INF, 1.0, -INF, 2.0], 3, [0.0, 1.0, 0.0, 1.0]),
        ([-INF, -INF, -INF, -INF], 1, [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0, 4.0], 0, [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0, 4.0], 4, [1.0, 1.0, 1.0, 1.0]),
        ([3e38, 3e38, 3e38, -3e38], 1, [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([3e38, 0.0, -3e38, -3e38], 1.5, [1.0, 0.5, 0.0, 0.0]),
    ],
)
def test_known_answers_at_the_edges(gate, row, k, expected, dtype):
    y, residual = cpu.gated_topk(gate, torch.tensor([row], dtype=dtype), k, 1.0, state=True)
    right = torch.tensor([expected], dtype=dtype)
    torch.testing.assert_close(y, right, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert ((y == 0) == (right == 0)).all()
    assert ((y == 1) == (right == 1)).all()
    settled = not 0 < k < sum(score > -INF for score in row) or row.count(INF) >= k
    if gate == "normal":
        assert (residual.abs() > 40)[settled | (y == 0) | (y == 1)].all()
    elif settled:
        assert not residual.any()
    elif gate == "sparse":
        assert torch.equal(residual, y)
    else:
        assert not residual[(y == 0) | (y == 1)].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 200, 1000, 40_000])
def test_nan_stays_in_its_row(gate, n, dtype):
    x, k = gaussian((3, n), dtype), 2 + n // 32
    expected, _ = cpu.gated_topk(gate, x, k, 1.0)
    bits = x.view(torch.int32 if dtype == torch.float32 else torch.int64)
    bits[1, n // 2 + (n > 256)] = torch.iinfo(bits.dtype).max  # a NaN; not where a long row is sampled
    y, residual = cpu.gated_topk(gate, x, k, 1.0, state=True)
    assert y[1].isnan().all()
    assert residual[1].isnan().all()
    assert torch.equal(y[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_to_do(gate, shape):
    y, residual = cpu.gated_topk(gate, torch.empty(shape), 0.0, 1.0, state=True)
    assert y.shape == residual.shape == shape


def test_smallest_temperature(gate):
    x = torch.tensor([[1.0, 3.0, 2.0, 3.0]])
    y, _ = cpu.gated_topk(gate, x, 1, 1e-45)
    assert y.tolist() == [[0.0, 0.5, 0.0, 0.5]]


@pytest.mark.parametrize(
    ("gate", "shape", "dtype"), in_turn(GATES, [(513, 64), (37, 900), (3, 40_000), (1, 1_200_001)], DTYPES)
)
def test_thread_count_does_not_change_a_bit(gate, shape, dtype):
    x = gaussian(shape, dtype)
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(cpu.gated_topk(gate, x, 7, 1.0)[0])
    assert all(torch.equal(result, results[0]) for result in results[1:])


@every_instruction_set
@pytest.mark.parametrize("rows", ["short", costly("long")])
def test_every_instruction_set(gate, isa, rows, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {}
    for dtype in DTYPES:
        for case, (shape, k, scale, temperature) in CASES.items():
            if (rows == "long") != (shape[-1] > 1000):
                continue
            problems[case, dtype] = (gaussian(shape, dtype, scale=scale), k, temperature)
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
problems = torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True)
results = {{key: cpu.gated_topk({gate!r}, *inputs, state=True) for key, inputs in problems.items()}}
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for key, (x, k, temperature) in problems.items():
        assert_true(gate, *results[key], x, k, temperature)


def test_forked_child_does_not_wait_for_its_parents_threads(gate):
    torch.set_num_threads(2)
    x = gaussian((4, 100_003), torch.float32)
    expected, _ = cpu.gated_topk(gate, x, 9, 1.0)

    def in_child():
        raise SystemExit(
            0 if np.array_equal(cpu.gated_topk(gate, x, 9, 1.0)[0].numpy(), expected.numpy()) else 1
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a threaded process is the test
        child = multiprocessing.get_context("fork").Process(target=in_child)
        child.start()
    child.join(60)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs
    assert child.exitcode == 0


def test_concurrent_python_threads(gate):
    torch.set_num_threads(2)
    problems = [gaussian((30, 1000), torch.float32, seed) for seed in range(8)]
    expected = [cpu.gated_topk(gate, x, 9, 1.0)[0] for x in problems]
    with ThreadPoolExecutor(4) as pool:
        runs = pool.map(lambda x: [cpu.gated_topk(gate, x, 9, 1.0)[0] for _ in range(20)], problems)
        for outs, right in zip(runs, expected, strict=True):
            assert all(torch.equal(out, right) for out in outs)


@pytest.mark.parametrize("k", [costly(1), 1000, costly(500_000), 999_999])
def test_a_million_in_float32(gate, k):
    x = gaussian((1, 1_000_000), torch.float32)
    y, state = cpu.gated_topk(gate, x, k, 1.0, state=True)
    assert abs(y.double().sum().item() - k) <= 1e-5 * k
    exact, exact_state = cpu.gated_topk(gate, x.double(), k, 1.0, state=True)  # itself tested above
    slope = 1 if gate == "sparse" else 20 * torch.minimum(exact, 1 - exact)
    assert ((y - exact).abs() <= 4 * torch.finfo(torch.float32).eps * (exact + slope)).all()
    if gate == "normal":
        assert ((state - exact_state).abs() <= 1e-6 * (1 + exact_state.abs())).all()
    elif gate != "sparse":
        assert ((state - exact_state).abs() <= 1e-5 * exact_state.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gate", ["laplace", "sparse"])
def test_neighbouring_numbers_and_a_temperature_below_their_distance(gate, dtype):
    """There is no number between the k-th and the next score to start from."""
    x = torch.tensor([[1.0, 1.0, -3.0]], dtype=dtype)
    x[0, 1] += torch.finfo(dtype).eps
    for temperature in (1e-2 * torch.finfo(dtype).eps, 1e-30):
        y, _ = cpu.gated_topk(gate, x, 1, temperature)
        torch.testing.assert_close(y, torch.tensor([[0.0, 1.0, 0.0]], dtype=dtype), rtol=0, atol=1e-6)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2000, 8, dtype=dtype, generator=generator) + 1e6
    for temperature in (1e-4, 1e-8, 1e-30):
        y, _ = cpu.gated_topk(gate, rows, 4, temperature)
        assert ((y.sum(-1) - 4).abs() < 1e-4).all()
