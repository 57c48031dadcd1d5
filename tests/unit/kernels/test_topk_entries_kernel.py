"""The kernel of topk_entries against a stable sort, and against the dense kernel for the weights."""

import numpy as np
import pytest
import torch

from khot.kernels import cpu, loader
from strategies.instruction_sets import every_instruction_set
from strategies.quick_run import in_turn
from strategies.rows_to_select import ROWS, problem

pytestmark = pytest.mark.usefixtures("library")

SHAPES = [(0, 5), (1,), (2, 1), (4, 15), (2, 3, 63), (5, 64), (70, 65), (4, 300), (6, 1000), (2, 4097)]
LONG = (1, 140_003)
DTYPES = [np.float32, np.float64]


def budgets(n):
    return sorted({0, 1, min(9, n), n // 2, max(n - 1, 0), n})


def assert_entries(found, x, k, mask=None, by_position=False, temperature=None, dense=None):
    rows = x if mask is None else x.masked_fill(~mask, -np.inf)
    order = rows.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    exists = rows.gather(-1, order) != -np.inf
    if by_position:
        place = torch.where(exists, order, x.shape[-1]).sort(dim=-1, stable=True).indices
        order, exists = order.gather(-1, place), exists.gather(-1, place)
    indices, weights, values = found
    assert torch.equal(indices[exists], order[exists])
    assert ((indices >= 0) & (indices < x.shape[-1])).all()
    torch.testing.assert_close(
        values, torch.where(exists, x.gather(-1, order), 0), rtol=0, atol=0, equal_nan=True
    )
    if temperature is not None:
        dense = cpu.gated_topk("logistic", x, k, temperature, mask)[0]
    elif dense is None:
        dense = torch.where(rows.isnan().any(-1, keepdim=True), torch.nan, torch.ones_like(rows))
    expected = torch.where(exists, dense.gather(-1, order), 0)
    torch.testing.assert_close(weights, expected, rtol=2e-6, atol=1e-30, equal_nan=True)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("kind", "dtype"), in_turn(ROWS, DTYPES))
def test_equals_a_stable_sort(kind, dtype):
    for shape in SHAPES:
        x = torch.from_numpy(problem(kind, shape, dtype))
        for k in budgets(shape[-1]):
            for by_position in (False, True):
                found = cpu.topk_entries(x, k, by_position=by_position)
                assert_entries(found, x, k, by_position=by_position)


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize("kind", ["normal", "few values", "some NaN"])
def test_a_long_row(kind):
    x = torch.from_numpy(problem(kind, LONG, np.float32))
    for k in (1, 100, 60_000):
        assert_entries(cpu.topk_entries(x, k, 1.0), x, k, temperature=1.0)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("kind", "dtype"), in_turn(ROWS, DTYPES))
def test_masks_temperatures_and_strides(kind, dtype):
    rng = np.random.default_rng(1)
    for shape in [(9, 20), (4, 3, 70), (20, 1000), (3, 5000)]:
        x = torch.from_numpy(problem(kind, shape, dtype))
        mask = torch.from_numpy(rng.random(shape) < rng.random((*shape[:-1], 1)))
        temperature = torch.from_numpy(rng.random((*shape[:-1], 1)) + 0.5)
        for k in (1, 7, shape[-1] // 2, shape[-1]):
            assert_entries(cpu.topk_entries(x, k, 0.7), x, k, temperature=0.7)
            found = cpu.topk_entries(x, k, temperature, mask)
            assert_entries(found, x, k, mask, temperature=temperature)
    moved = torch.from_numpy(problem(kind, (30, 4, 6), dtype)).transpose(0, 2)
    assert_entries(cpu.topk_entries(moved, 4, 1.0), moved.contiguous(), 4, temperature=1.0)


@every_instruction_set
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = [
        torch.from_numpy(problem(kind, shape, dtype))
        for kind in ROWS
        for dtype in DTYPES
        for shape in [(5, 17), (4, 64), (3, 1000)]
    ]
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
problems = torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True)
results = [(cpu.topk_entries(x, 9, 1.0), cpu.gated_topk("logistic", x, 9, 1.0, None)[0]) for x in problems]
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for x, (found, dense) in zip(problems, results, strict=True):
        assert_entries(found, x, 9, dense=dense)


def test_no_rows_no_places_and_too_many():
    assert [t.shape for t in cpu.topk_entries(torch.zeros(0, 5), 3)] == [(0, 3)] * 3
    assert [t.shape for t in cpu.topk_entries(torch.zeros(4, 5), 0)] == [(4, 0)] * 3
    with pytest.raises(ValueError, match="topk_entries_f32: k must be from 0 to 5, got 6"):
        cpu.topk_entries(torch.zeros(4, 5), 6)
