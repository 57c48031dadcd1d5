"""The compiled isotonic regression, soft ranks and their Jacobian, against scikit-learn."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.isotonic import isotonic_regression

from khot.kernels import cpu
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("library", "poisoned")

DTYPES = [torch.float32, torch.float64]
SHAPES = [(1, 1), (3, 2), (5, 7), (4, 128), (3, 129), (40, 250), (1, 20000)]
SCALES = [1e-3, 1.0, 30.0, 1e6]


def tied_scores(shape, dtype, scale, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    x[..., ::5] = x[..., :1].clone()  # ties
    return x.to(dtype)


def true_ranks(x, temperature, descending):
    """Ranks and, as numbers that differ between blocks, the levels of the regression; of one row."""
    z = np.asarray(x, np.float64) / temperature * (-1 if descending else 1)
    order = np.argsort(-z, kind="stable")
    s, w = z[order], np.arange(len(z), 0, -1.0)
    level = isotonic_regression(s - w, increasing=False)
    ranks, levels = np.empty_like(z), np.empty_like(z)
    ranks[order], levels[order] = s - level, level
    return ranks, levels


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "scale", "descending"), in_turn(SHAPES, SCALES, [False, True]))
def test_ranks_and_their_jacobian(dtype, shape, scale, descending):
    x = tied_scores(shape, dtype, scale)
    g = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    ranks, order = cpu.soft_rank(x, 0.5, descending)
    product = cpu.soft_rank_jacobian(g, order, 0.5, descending)
    exact = 1e-6 if dtype == torch.float32 else 1e-9
    for row in range(shape[0]):
        expected, levels = true_ranks(x[row].numpy(), 0.5, descending)
        # s − level cancels in the oracle, which has it in double: 1e6 · 2⁻⁵² beside ranks up to n.
        np.testing.assert_allclose(ranks[row].numpy(), expected, rtol=exact, atol=1e-8)
        _, block, size = np.unique(levels, return_inverse=True, return_counts=True)
        of_row = g[row].double().numpy()
        mean = np.bincount(block, of_row)[block] / size[block]
        right = (of_row - mean) / (-0.5 if descending else 0.5)
        np.testing.assert_allclose(product[row].numpy(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_temperature_for_each_row(dtype):
    x = tied_scores((6, 40), dtype, 3.0)
    temperature = torch.linspace(0.1, 20, 6, dtype=dtype).unsqueeze(-1)
    ranks, order = cpu.soft_rank(x, temperature, False)
    product = cpu.soft_rank_jacobian(x, order, temperature, False)
    for row in range(6):
        alone, its_order = cpu.soft_rank(x[row], float(temperature[row]), False)
        assert torch.equal(ranks[row], alone)
        assert torch.equal(
            product[row], cpu.soft_rank_jacobian(x[row], its_order, float(temperature[row]), False)
        )


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_isotonic_regression_by_scikit_learn(dtype, shape):
    s = tied_scores(shape, dtype, 10.0).sort(-1, descending=True).values
    w = tied_scores(shape, dtype, 10.0, seed=2).sort(-1, descending=True).values
    p, start = cpu.isotonic(s, w, "l2")
    for row in range(shape[0]):
        level = isotonic_regression(s[row].double().numpy() - w[row].double().numpy(), increasing=False)
        np.testing.assert_allclose(p[row].numpy(), s[row].double().numpy() - level, rtol=1e-5, atol=1e-5)
        begins = np.flatnonzero(np.diff(level, prepend=np.inf))
        assert set(begins) <= set(start[row].tolist())
        assert start[row].diff(prepend=torch.tensor([0])).ge(0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["kl", "log_kl"])
def test_entropic_projection_is_optimal(dtype, kind):
    # Within each block the sums agree, and partial sums of p never exceed those of w: p is majorised by w,
    # and equal to exp s times a factor on each block, which falls from block to block (complementarity).
    s = tied_scores((8, 60), dtype, 2.0).sort(-1, descending=True).values
    w = tied_scores((8, 60), dtype, 1.0, seed=3).sort(-1, descending=True).values
    p, start = cpu.isotonic(s, w.exp() if kind == "kl" else w, kind)
    p = p.double() if kind == "kl" else p.double().exp()
    slack = w.double().exp().cumsum(-1) - p.cumsum(-1)
    total = w.double().exp().sum(-1, keepdim=True)
    assert (slack >= -1e-5 * total).all()
    assert (slack[..., -1:].abs() <= 1e-5 * total).all()
    level = s.double() - p.log()
    same_block = start[..., 1:] == start[..., :-1]
    steps = level.diff(dim=-1)
    assert (steps[same_block].abs() < 1e-4).all()
    assert (steps[~same_block] < 1e-4).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_blocks(dtype):
    values = tied_scores((3, 9), dtype, 1.0)
    start = torch.tensor([[0, 0, 0, 3, 4, 4, 4, 4, 8], [0] * 9, list(range(9))])
    sums = cpu.block_sums(values, start)
    for row in range(3):
        for i in range(9):
            expected = values[row][start[row] == start[row, i]].double().sum()
            assert sums[row, i].item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_scores_stay_in_their_row(dtype):
    x = tied_scores((4, 33), dtype, 1.0)
    alone = cpu.soft_rank(x[3], 1.0, False)[0]
    x[0, 3], x[1, 4], x[2, :5] = torch.nan, torch.inf, -torch.inf
    ranks = cpu.soft_rank(x, 1.0, False)[0]
    assert torch.equal(ranks[3], alone)
    assert ranks[1, 4] == 33
    assert ranks[2, :5].tolist() == [3.0] * 5
    largest = torch.finfo(dtype).max
    hard = cpu.soft_rank(torch.tensor([largest, -largest, 0.0], dtype=dtype), 1e-30, True)[0]
    assert hard.tolist() == [1.0, 3.0, 2.0]
    smallest = torch.finfo(dtype).tiny
    assert (
        cpu.soft_rank(x[3] * 1e3, smallest, False)[0].tolist()
        == torch.tensor(true_ranks(x[3], 1e-9, False)[0]).round(decimals=1).tolist()
    )


def test_concurrent_python_threads_and_a_forked_child():
    torch.set_num_threads(2)
    rows = [tied_scores((30, 1000), torch.float32, 100.0, seed) for seed in range(6)]
    expected = [cpu.soft_rank(x, 1.0, False)[0] for x in rows]
    with ThreadPoolExecutor(3) as pool:
        for found, right in zip(
            pool.map(lambda x: cpu.soft_rank(x, 1.0, False)[0], rows), expected, strict=True
        ):
            assert torch.equal(found, right)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if torch.equal(cpu.soft_rank(rows[0], 1.0, False)[0], expected[0]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cpu.soft_rank(torch.arange(3), 1.0, False), TypeError, "x must be float32 or float64"),
        (
            lambda: cpu.soft_rank(torch.randn(2, 3), torch.ones(4, 1), False),
            ValueError,
            "temperature must broad",
        ),
        (
            lambda: cpu.soft_rank_jacobian(torch.randn(3), torch.arange(4), 1.0, False),
            ValueError,
            "shape of order",
        ),
        (lambda: cpu.isotonic(torch.randn(3), torch.randn(4), "l2"), ValueError, "w must be like s"),
    ],
)
def test_wrong_inputs_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [
        (
            "soft_rank",
            ("x", 1.0, 0, "out", "order", 1, 4, 1),
            {0: 0, 1: 0, 2: 2, 3: 0, 4: 0, 5: -1, 6: 2**32, 7: 0},
        ),
        (
            "soft_rank_jacobian",
            ("x", "order", 1.0, 0, "out", 1, 4, 1),
            {0: 0, 1: 0, 2: 0, 3: 2, 4: 0, 5: -1, 7: 0},
        ),
        (
            "isotonic",
            (0, "x", 4, "x", 4, "out", "order", 1, 4, 1),
            {0: 3, 1: 0, 2: -1, 3: 0, 5: 0, 6: 0, 9: 0},
        ),
        ("block_sums", ("x", "order", "out", 1, 4, 1), {0: 0, 1: 0, 2: 0, 3: -1, 4: -1, 5: 0}),
    ],
)
def test_module_checks_what_it_can(library, precision, name, arguments, wrong):
    memory = {
        "x": torch.zeros(4, dtype=torch.float64),
        "out": torch.zeros(4, dtype=torch.float64),
        "order": torch.zeros(4, dtype=torch.int64),
    }
    kernel = getattr(library, f"{name}_{precision}")
    good = [memory[a].data_ptr() if isinstance(a, str) else a for a in arguments]
    assert kernel(*good) is None
    for position, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            kernel(*good[:position], value, *good[position + 1 :])
    with pytest.raises(TypeError, match=f"takes {len(good)} arguments, got 1"):
        kernel(0)
