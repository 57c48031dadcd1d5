"""The hard top-k kernel, and the selection under it, against a full sort."""

import multiprocessing
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from khot.kernels import cpu, loader
from strategies.instruction_sets import every_instruction_set
from strategies.quick_run import in_turn
from strategies.rows_to_select import LIES, ROWS, SAMPLES, misleading, problem

pytestmark = pytest.mark.usefixtures("library")

SHAPES = [(3, 0), (0, 5), (1,), (2, 1), (3, 2), (4, 15), (2, 16), (3, 17), (2, 3, 63), (5, 64), (2, 65)]
SHAPES += [(3, 100), (4, 300), (6, 1000), (3, 4095), (2, 4096), (1, 20000)]
LONG = (1, 140_003)
DTYPES = [np.float32, np.float64]


def truth(x, k, mask=None):
    """The first min(k, allowed) of the allowed entries, in the order NaN, largest to smallest, index."""
    allowed = (x != -np.inf) & (True if mask is None else mask)
    nan = np.isnan(x)
    position = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    order = np.lexsort((position, -np.where(nan, 0, x), ~nan, ~allowed), axis=-1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, position, -1)
    return ((rank < np.asarray(k)) & allowed).astype(x.dtype)


def assert_selected(out, x, k, mask=None):
    assert out.shape == x.shape
    assert out.is_contiguous()
    assert np.array_equal(out.numpy(), truth(x, k, mask))
    assert out.numpy().dtype == x.dtype


def budgets(n):
    return sorted({0, min(1, n), n // 4, n // 2, max(n - 1, 0), n})


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize(("kind", "dtype", "threads"), in_turn(ROWS, DTYPES, [1, 2]), indirect=["threads"])
def test_equals_truth(kind, dtype):
    for shape in SHAPES:
        x = problem(kind, shape, dtype)
        before = x.copy()
        for k in budgets(shape[-1]):
            assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)
        assert x.tobytes() == before.tobytes()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("kind", "dtype"), in_turn(ROWS, DTYPES))
def test_equals_truth_in_a_long_row(kind, dtype):
    x = problem(kind, LONG, dtype)
    for k in budgets(LONG[-1]):
        assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize(("kind", "dtype", "threads"), in_turn(ROWS, DTYPES, [1, 2]), indirect=["threads"])
def test_mask_and_a_budget_for_each_row(kind, dtype):
    rng = np.random.default_rng(1)
    for shape in [(9, 20), (4, 3, 70), (20, 1000)]:
        x = problem(kind, shape, dtype)
        mask = rng.random(shape) < rng.random((*shape[:-1], 1))
        k = rng.integers(0, shape[-1] + 1, (*shape[:-1], 1))
        scores, allowed, budget = torch.from_numpy(x), torch.from_numpy(mask), torch.from_numpy(k)
        assert_selected(cpu.hard_topk(scores, budget), x, k)
        assert_selected(cpu.hard_topk(scores, budget, allowed), x, k, mask)
        assert_selected(cpu.hard_topk(scores, 5, allowed), x, 5, mask)
        assert_selected(cpu.hard_topk(scores, budget, torch.zeros_like(allowed)), x, k, np.zeros_like(mask))


@pytest.mark.parametrize(("lie", "n", "dtype"), in_turn(LIES, SAMPLES, DTYPES))
def test_a_sample_that_misleads_costs_time_only(n, dtype, lie):
    x, budgets = misleading(lie, n, dtype)
    for k in budgets:
        assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [100, 1000, 20000])
def test_budgets_between_one_value_and_the_next(n, dtype):
    x = problem("few values", (1, n), dtype)
    edges = {np.count_nonzero(x > value) for value in np.unique(x)}
    for k in sorted({edge + step for edge in edges for step in (-1, 0, 1)}):
        assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_rank_of_short_rows(dtype):
    for n in (65, 130):
        for kind in ("normal", "few values", "many scales"):
            x = problem(kind, (1, n), dtype)
            for k in range(n + 1):
                assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan]), st.booleans()),
        min_size=1,
        max_size=70,
    ),
    st.integers(0, 70),
    st.sampled_from(DTYPES),
)
def test_short_rows_of_special_values(entries, k, dtype):
    x, mask = np.array([entry[0] for entry in entries], dtype), np.array([entry[1] for entry in entries])
    assert_selected(cpu.hard_topk(torch.from_numpy(x), k), x, k)
    assert_selected(cpu.hard_topk(torch.from_numpy(x), k, torch.from_numpy(mask)), x, k, mask)


@every_instruction_set
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {
        (kind, np.dtype(dtype).name, shape): torch.from_numpy(problem(kind, shape, dtype))
        for kind in ROWS
        for dtype in DTYPES
        for shape in [(5, 17), (4, 64), (3, 1000), (1, 20000)]
    }
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
problems = torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True)
results = {{}}
for key, x in problems.items():
    n = x.shape[-1]
    results[key] = [(k, cpu.hard_topk(x, k)) for k in (1, 9, n // 2, n - 1)]
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for key, x in problems.items():
        for k, out in results[key]:
            assert_selected(out, x.numpy(), k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_need_not_be_contiguous(dtype):
    rng = np.random.default_rng(2)
    x = torch.from_numpy(problem("few values", (6, 8, 50), dtype)).transpose(0, 2)
    mask = torch.from_numpy(rng.random((6, 8, 1)) < 0.8).transpose(0, 2)
    k = torch.from_numpy(rng.integers(0, 7, (50, 8, 2)))[..., 1:]
    assert not x.is_contiguous()
    wide = mask.expand(x.shape).numpy()
    assert_selected(cpu.hard_topk(x, k, mask), np.ascontiguousarray(x.numpy()), k.numpy(), wide)


def test_budget_larger_than_the_row_and_below_zero():
    x = torch.tensor([[3.0, 1.0, -np.inf, 2.0]])
    assert cpu.hard_topk(x, 9).tolist() == [[1, 1, 0, 1]]
    assert cpu.hard_topk(x, torch.tensor([[-2]])).tolist() == [[0, 0, 0, 0]]


def test_forked_child_does_not_wait_for_its_parents_threads():
    torch.set_num_threads(2)
    x = torch.from_numpy(problem("normal", (30, 1000), np.float32))
    expected = cpu.hard_topk(x, 100), *cpu.argsort(x)  # from here on the parent has a pool of threads

    def in_child():
        found = cpu.hard_topk(x, 100), *cpu.argsort(x)
        right = all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(found, expected, strict=True))
        raise SystemExit(0 if right else 1)

    with warnings.catch_warnings():
        # Python 3.12 and later warn that forking a threaded process is risky: that risk is the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=in_child)
        child.start()
    child.join(60)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs
    assert child.exitcode == 0


def test_result_has_no_graph():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert not cpu.hard_topk(x, 2).requires_grad
    assert not cpu.hard_topk(x.T, 2).requires_grad


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(3, dtype=torch.float16), 1), TypeError, "x must be float32 or float64"),
        ((torch.tensor(1.0), 1), ValueError, "at least one dimension"),
        ((torch.zeros(4, 3), torch.ones(5, 1)), ValueError, "k must broadcast"),
    ],
)
def test_wrong_inputs_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        cpu.hard_topk(*arguments)


@pytest.mark.parametrize("name", ["hard_topk_f32", "hard_topk_f64"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({}, None, ""),
        ({"mask": 0}, None, ""),
        ({"k": 2.0}, None, ""),
        ({"n": 0, "x": 0, "mask": 0, "out": 0}, None, ""),
        ({"x": 0}, ValueError, "x must not be a null address"),
        ({"k": 0}, ValueError, "k must not be a null address"),
        ({"out": 0}, ValueError, "out must not be a null address"),
        ({"rows": -1}, ValueError, "rows must be from 0"),
        ({"n": -1}, ValueError, "n must be from 0"),
        ({"rows": 2**40, "n": 2**40}, OverflowError, "overflows"),
        ({"threads": 0}, ValueError, "threads must be from 1"),
        ({"x": 1.5}, TypeError, "int"),
    ],
)
def test_module_checks_what_it_can(library, name, change, error, message):
    memory = torch.zeros(4, 4, dtype=torch.int64)
    x, mask, k, out = (row.data_ptr() for row in memory)
    arguments = {"x": x, "mask": mask, "k": k, "out": out, "rows": 1, "n": 4, "threads": 1, **change}
    kernel = getattr(library, name)
    if error is None:
        assert kernel(*arguments.values()) is None
        return
    with pytest.raises(error, match=message):
        kernel(*arguments.values())


def test_module_counts_its_arguments(library):
    with pytest.raises(TypeError, match="hard_topk_f32 takes 7 arguments, got 2"):
        library.hard_topk_f32(0, 0)
