"""The argsort kernel against numpy's stable sort: the same bits, not only the same numbers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from khot.kernels import cpu, loader, sorting
from khot.kernels.cpu import passing
from strategies.instruction_sets import every_instruction_set
from strategies.rows_to_select import ROWS, problem

pytestmark = pytest.mark.usefixtures("library")

SHAPES = [(3, 0), (0, 5), (1,), (2, 1), (3, 2), (4, 15), (2, 16), (3, 17), (2, 3, 31), (5, 32), (2, 33)]
SHAPES += [
    (9, 64),
    (3, 127),
    (3, 128),
    (3, 129),
    (7, 255),
    (7, 256),
    (6, 1000),
    (2, 4095),
    (2, 4096),
    (1, 20000),
]
LONG = (1, 100_003)
DTYPES = [np.float32, np.float64]


def truth(x, descending):
    """Stable order with NaN as the largest; numpy sorts NaN last, and knows no descending order."""
    largest_last = np.where(np.isnan(x), 0, x)
    if descending:
        largest_last = -largest_last
    unranked = np.isnan(x) != descending  # NaN last; when descending, all others after NaN
    position = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    return np.lexsort((position, largest_last, unranked), axis=-1)


def assert_sorted(result, x, descending):
    values, indices = result
    expected = truth(x, descending)
    assert indices.dtype == torch.int64
    assert values.shape == indices.shape == x.shape
    assert values.is_contiguous()
    assert indices.is_contiguous()
    assert np.array_equal(indices.numpy(), expected)
    integer = np.dtype(f"i{x.dtype.itemsize}")
    # As integers, so that the sign of a zero and the payload of a NaN count.
    assert np.array_equal(values.numpy().view(integer), np.take_along_axis(x, expected, -1).view(integer))


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ROWS)
def test_equals_truth(kind, dtype):
    for shape in SHAPES:
        x = problem(kind, shape, dtype)
        before = x.copy()
        for descending in (False, True):
            assert_sorted(cpu.argsort(torch.from_numpy(x), descending), x, descending)
        assert x.tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "few values", "close together", "many scales", "uniform bits"])
def test_equals_truth_in_a_long_row(kind, dtype):
    x = problem(kind, LONG, dtype)
    for descending in (False, True):
        assert_sorted(cpu.argsort(torch.from_numpy(x), descending), x, descending)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [64, 200, 1000, 5000])
def test_keys_that_differ_in_low_bits_only_or_in_high_and_low_ones(n, dtype):
    rng = np.random.default_rng(n)
    integer = np.dtype(f"i{np.dtype(dtype).itemsize}")
    one = np.ones(1, dtype).view(integer)[0]
    low = rng.integers(0, 2**9, n)
    for high in (0, rng.integers(0, 2, n) << (8 * integer.itemsize - 4), rng.integers(-2, 3, n) << 23):
        x = (one + low + high).astype(integer).view(dtype)
        for descending in (False, True):
            assert_sorted(cpu.argsort(torch.from_numpy(x), descending), x, descending)


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 2.5, np.inf, -np.inf, np.nan]), max_size=160),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_short_rows_of_special_values(values, dtype, descending):
    x = np.array(values, dtype)
    assert_sorted(cpu.argsort(torch.from_numpy(x), descending), x, descending)


@given(st.lists(st.floats(width=32), max_size=160), st.sampled_from(DTYPES), st.booleans())
def test_short_rows_of_any_values(values, dtype, descending):
    x = np.array(values, dtype)
    assert_sorted(cpu.argsort(torch.from_numpy(x), descending), x, descending)


@every_instruction_set
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {
        (kind, np.dtype(dtype).name, shape): torch.from_numpy(problem(kind, shape, dtype))
        for kind in ROWS
        for dtype in DTYPES
        for shape in [(5, 17), (4, 64), (3, 1000), (1, 5000)]
    }
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
problems = torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True)
results = {{key: [cpu.argsort(x, False), cpu.argsort(x, True)] for key, x in problems.items()}}
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for key, x in problems.items():
        for descending in (False, True):
            assert_sorted(results[key][descending], x.numpy(), descending)


@pytest.mark.parametrize("dtype", DTYPES)
def test_input_need_not_be_contiguous(dtype):
    x = problem("few values", (6, 8, 50), dtype)
    strided = torch.from_numpy(x).transpose(0, 2)[..., ::2]
    assert not strided.is_contiguous()
    assert_sorted(cpu.argsort(strided), strided.contiguous().numpy(), False)


def test_a_lazily_negated_view_is_read_as_negated():
    x = torch.randn(200, generator=torch.Generator().manual_seed(0))
    negated = torch.complex(torch.zeros(200), x).conj().imag
    assert negated.is_neg()
    assert torch.equal(cpu.argsort(negated)[1], cpu.argsort(-x)[1])


def test_concurrent_python_threads():
    torch.set_num_threads(2)
    rows = [torch.from_numpy(problem("normal", (30, 1000), np.float32, seed)) for seed in range(8)]
    expected = [torch.from_numpy(truth(x.numpy(), False)) for x in rows]

    def repeatedly(x):
        return [cpu.argsort(x)[1] for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(repeatedly, rows), expected, strict=True):
            assert all(torch.equal(indices, right) for indices in found)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: torch.randn(3).half(), TypeError, "x must be float32 or float64"),
        (lambda: torch.arange(3), TypeError, "x must be float32 or float64"),
        (lambda: torch.tensor(1.0), ValueError, "at least one dimension"),
    ],
)
def test_wrong_inputs_are_named(make, error, message):
    with pytest.raises(error, match=message):
        cpu.argsort(make())


@pytest.mark.parametrize("name", ["argsort_f32", "argsort_f64"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({}, None, ""),
        ({"values": 0}, None, ""),
        ({"n": 0, "x": 0, "indices": 0}, None, ""),
        ({"x": 0}, ValueError, "x must not be a null address"),
        ({"indices": 0}, ValueError, "indices must not be a null address"),
        ({"descending": 2}, ValueError, "descending must be from 0 to 1"),
        ({"rows": -1}, ValueError, "rows must be from 0"),
        ({"n": 2**32}, ValueError, "n must be from 0 to 4294967295"),
        ({"rows": 2**40, "n": 2**31}, OverflowError, "overflows"),
        ({"threads": 0}, ValueError, "threads must be from 1"),
        ({"x": 1.5}, TypeError, "int"),
    ],
)
def test_module_checks_what_it_can(library, name, change, error, message):
    memory = torch.zeros(3, 4, dtype=torch.float64)
    x, values, indices = (row.data_ptr() for row in memory)
    arguments = {
        "x": x,
        "descending": 0,
        "values": values,
        "indices": indices,
        "rows": 1,
        "n": 4,
        "threads": 1,
    }
    arguments.update(change)
    kernel = getattr(library, name)
    if error is None:
        assert kernel(*arguments.values()) is None
        return
    with pytest.raises(error, match=message):
        kernel(*arguments.values())


def test_module_counts_its_arguments(library):
    with pytest.raises(TypeError, match="argsort_f32 takes 7 arguments, got 2"):
        library.argsort_f32(0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_serves_every_dtype(dtype, descending):
    x = torch.randint(-5, 6, (4, 300), generator=torch.Generator().manual_seed(0)).to(dtype)
    values, indices = sorting.argsort(x, descending)
    expected = torch.sort(x, stable=True, descending=descending)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def test_sorting_has_no_graph_and_works_where_the_kernel_cannot(monkeypatch):
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0), requires_grad=True)
    expected = torch.sort(x.detach(), stable=True)
    native = sorting.argsort(x)
    compiled = torch.compile(sorting.argsort, backend="eager", fullgraph=True)(x)
    mapped = torch.func.vmap(sorting.argsort)(x)
    monkeypatch.setattr(passing, "native", lambda: None)
    for values, indices in (native, compiled, mapped, sorting.argsort(x)):
        assert not values.requires_grad
        assert torch.equal(values, expected.values)
        assert torch.equal(indices, expected.indices)


def test_sorting_of_nothing_and_of_a_scalar():
    assert sorting.argsort(torch.empty(3, 0))[1].shape == (3, 0)
    assert sorting.argsort(torch.tensor(2.0))[0] == 2
