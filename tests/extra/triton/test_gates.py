"""The threshold family by Triton's interpreter, against the compiled kernels for the CPU."""

import pytest
import torch

from khot.kernels import cpu
from khot.kernels.triton import gates, long_gates, rows
from strategies.seeded import randn

GATES = ["logistic", "laplace", "sparse"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflow in the interpreter


def movable(gate, state):
    """The state where it has a slope: elsewhere it may be anything that has none."""
    return state if gate != "sparse" else torch.where((state > 0) & (state < 1), state, 0)


def compare(gate, x, k, temperature, mask=None):
    """Weights, state and Jacobian product."""
    y, state = gates.gated_topk(gate, x, k, temperature, mask, 2.0)
    expected, expected_state = cpu.gated_topk(gate, x.float(), k, temperature, mask, state=True)
    assert (y.dtype, state.dtype) == (x.dtype, torch.float32)
    torch.testing.assert_close(
        y, expected.to(x.dtype), rtol=0, atol=4e-7 if x.dtype == torch.float32 else 8e-3
    )
    moving, expected_moving = (movable(gate, s) for s in (state, expected_state))
    torch.testing.assert_close(moving, expected_moving, rtol=0, atol=4e-7)
    grad = randn(*x.shape, seed=1)
    out, mean = gates.gate_jacobian(expected_state, grad, temperature, gate, 2.0)
    right, right_mean = cpu.gate_jacobian(expected_state, grad, temperature, gate)
    torch.testing.assert_close(out * temperature, right * temperature, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mean, right_mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.usefixtures("programs")
def test_budgets_and_temperatures_of_their_own(gate):
    k = torch.tensor([[0.0], [3.5], [36.0], [37.0]])
    compare(gate, 2 * randn(4, 37), k, torch.tensor([[1.0], [0.1], [0.5], [2.0]]))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.usefixtures("programs")
def test_masks(gate):
    mask = randn(2, 41, seed=2) > -0.3
    compare(gate, randn(2, 41), torch.tensor([[4.5], [41.0]]), torch.tensor([[0.7]]), mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gate", GATES)
def test_half_types(gate, dtype):
    compare(gate, randn(2, 40).to(dtype), torch.tensor([[5.0]]), torch.tensor([[0.5]]))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.usefixtures("programs")
def test_ties_infinities_and_nan(gate):
    """With excluded entries, to make the rows long."""
    inf = torch.inf
    x = torch.tensor(
        [[2.0, 2, 2, 2, 1, 0], [inf, 1, 0, -inf, 2, 2], [inf, inf, inf, 0, 0, 0], [-inf] * 4 + [1, 2]]
    )
    far = torch.tensor([[0.0, 1e30, -1e30, 5, 4, 3], [0, 1e4, 2e4, 3e4, 4e4, 5e4]])
    for rows_, k, temperature in ((x, 2.0, 0.5), (far, 3.0, 1.0)):
        row = torch.nn.functional.pad(rows_, (0, 28), value=-inf)
        compare(gate, row, torch.tensor([[k]]), torch.tensor([[temperature]]))
    spoilt = torch.zeros(2, 34)
    spoilt[0, 33] = torch.nan
    y = gates.gated_topk(gate, spoilt, torch.tensor(1.0), torch.tensor(1.0), None, 2.0)[0]
    assert y[0].isnan().all()
    assert not y[1].isnan().any()


def test_sparse_rows_at_their_kinks():
    """Scores on a grid of halves, where Newton's steps land on kinks again and again."""
    x = torch.randint(-4, 5, (24, 5), generator=torch.Generator().manual_seed(0)) / 2
    x[0, :3] = torch.tensor([1.0, 0.5, 0.0])
    k = torch.arange(24).remainder(4).view(24, 1) + 1.0
    y = gates.gated_topk("sparse", x, k, torch.tensor([[1.0]]), None, 2.0)[0]
    torch.testing.assert_close(y, cpu.gated_topk("sparse", x, k, 1.0)[0], rtol=0, atol=4e-7)


@pytest.mark.parametrize("gate", GATES)
def test_one_entry(gate):
    for k in (0.0, 0.5, 1.0):
        compare(gate, randn(2, 1), torch.tensor([[k]]), torch.tensor([[1.0]]))


@pytest.mark.parametrize("gate", GATES)
def test_a_long_row(gate, monkeypatch):
    """More than 65,536 entries; fewer programs than a GPU runs, which take the interpreter long."""
    monkeypatch.setattr(rows, "PROGRAMS", 3)
    assert rows.split(1, 70_000)[0] == 3
    x = randn(1, 70_000)
    y, _ = gates.gated_topk(gate, x, torch.tensor([[50.0]]), torch.tensor([[0.5]]), None, 2.0)
    expected, expected_state = cpu.gated_topk(gate, x, 50.0, 0.5, None, state=True)
    torch.testing.assert_close(y, expected, rtol=0, atol=2e-6)
    product, mean = gates.gate_jacobian(expected_state, x, torch.tensor([[0.5]]), gate, 2.0)
    right, right_mean = cpu.gate_jacobian(expected_state, x, 0.5, gate)
    torch.testing.assert_close(product, right, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(mean, right_mean, rtol=1e-4, atol=1e-5)


def test_how_rows_are_divided(monkeypatch):
    assert [rows.block_of(n) for n in (1, 16, 17, 4096, 100_000)] == [16, 16, 32, 4096, 4096]
    assert [rows.split(r, 65_536)[0] for r in (1, 10_000)] == [1, 1]
    assert [rows.split(r, 1_000_000)[0] for r in (1, 2, 10, 128, 129, 10_000)] == [123, 123, 25, 2, 1, 1]
    for r, n in ((1, 70_000), (3, 10**6), (100, 123_457), (7, 2**29)):
        parts, length = rows.split(r, n)
        assert (parts - 1) * length < n <= parts * length
        assert length % rows.LARGEST_BLOCK == 0
    launched = []
    for name in ("survey_kernel", "step_kernel", "write_kernel"):
        kernel = getattr(long_gates, name)

        class Counted:
            def __init__(self, kernel):
                self.kernel = kernel

            def __getitem__(self, grid):
                launched.append(grid)
                return self.kernel[grid]

        monkeypatch.setattr(long_gates, name, Counted(kernel))
    monkeypatch.setattr(rows, "LARGEST_BLOCK", 16)
    monkeypatch.setattr(rows, "LONG", 32)
    gates.gated_topk("logistic", randn(2, 48), torch.tensor(3.0), torch.tensor(1.0), None, 2.0)
    assert launched == [(2, 3)] * 10  # with the four of the digits: the 14 that the module names
