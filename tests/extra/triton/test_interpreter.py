"""The kernels for GPUs, computed by Triton's interpreter, against those for the CPU and slow truths."""

import pytest
import torch

from khot.designs.pivotal._duels import pivotal_tree
from khot.kernels import cpu
from khot.kernels.triton import draws, gates, order, rows

GATES = ["logistic", "laplace", "sparse"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflow in the interpreter


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
    torch.testing.assert_close(out, right, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mean, right_mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", GATES)
def test_budgets_and_temperatures_of_their_own(gate):
    k = torch.tensor([[0.0], [1.0], [3.5], [36.0], [37.0]])
    compare(gate, 2 * randn(5, 37), k, torch.tensor([[1.0], [0.1], [0.5], [2.0], [1.0]]))


@pytest.mark.parametrize("gate", GATES)
def test_masks(gate):
    mask = randn(3, 21, seed=2) > -0.3
    compare(gate, randn(3, 21), torch.tensor([[1.0], [4.5], [21.0]]), torch.tensor([[0.7]]), mask)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gate", GATES)
def test_half_types(gate, dtype):
    compare(gate, randn(2, 40).to(dtype), torch.tensor([[5.0]]), torch.tensor([[0.5]]))


@pytest.mark.parametrize("gate", GATES)
def test_rows_of_several_blocks(gate, monkeypatch):
    monkeypatch.setattr(gates, "block_of", lambda n: 64)
    compare(gate, randn(2, 200), torch.tensor([[7.0], [120.5]]), torch.tensor([[1.0], [0.3]]))


@pytest.mark.parametrize("gate", GATES)
def test_ties_infinities_and_nan(gate):
    inf = torch.inf
    x = torch.tensor(
        [[2.0, 2, 2, 2, 1, 0], [inf, 1, 0, -inf, 2, 2], [inf, inf, inf, 0, 0, 0], [-inf] * 4 + [1, 2]]
    )
    compare(gate, x, torch.tensor([[2.0]]), torch.tensor([[0.5]]))
    far = torch.tensor([[0.0, 1e30, -1e30, 5, 4, 3], [0, 1e4, 2e4, 3e4, 4e4, 5e4]])
    compare(gate, far, torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    spoilt = torch.tensor([[1.0, torch.nan, 0.0]])
    assert gates.gated_topk(gate, spoilt, torch.tensor(1.0), torch.tensor(1.0), None, 2.0)[0].isnan().all()


def test_hard_topk_and_its_ties(monkeypatch):
    x = torch.randint(0, 4, (4, 50), generator=torch.Generator().manual_seed(0)).float()
    x[1, 3], x[1, 7], x[2, 5], x[3, :20] = torch.nan, -0.0, torch.inf, -torch.inf
    k = torch.tensor([[0], [3], [20], [40]])
    for mask in (None, x > 0):
        assert torch.equal(order.hard_topk(x, k, mask), cpu.hard_topk(x, k, mask))
    monkeypatch.setattr(order, "block_of", lambda n: 16)
    assert torch.equal(order.hard_topk(x, k), cpu.hard_topk(x, k))
    assert torch.equal(order.hard_topk(x.bfloat16(), k).float(), cpu.hard_topk(x, k))


@pytest.mark.parametrize("left", [6, 8, 11])
def test_a_round_of_a_tournament(left):
    v = randn(3, 11).sort(-1, descending=True).values.requires_grad_()
    alone = 2 * left - 11
    best, other = v[:, alone:left], v[:, left:].flip(-1)
    share = torch.sigmoid(best - other)
    expected = torch.cat((v[:, :alone], other + share * (best - other)), -1)
    shares = torch.cat((torch.ones(3, alone), share), -1)
    blended, mine = order.tournament_round(v.detach(), left)
    torch.testing.assert_close(blended, expected.detach())
    torch.testing.assert_close(mine, shares.detach())
    g, h = randn(3, left, seed=1), randn(3, left, seed=2)
    (grad,) = torch.autograd.grad([expected, shares], [v], [g, h])
    torch.testing.assert_close(order.tournament_round_gradient(v.detach(), mine, g, h), grad)
    with pytest.raises(ValueError, match="left must satisfy"):
        order.tournament_round(v.detach(), 5)


def probabilities(n, k):
    p = cpu.gated_topk("sparse", 2 * randn(3, n), float(k), 1.0)[0]  # zeros and ones among them
    return p / p.sum(-1, keepdim=True) * k if not (p == 1).any() else p


@pytest.mark.parametrize("block", [16, 64])
def test_systematic_draws_are_those_of_the_cpu(block, monkeypatch):
    monkeypatch.setattr(draws, "block_of", lambda n: block)
    p = probabilities(40, 7)
    u = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u[0] = 0.0
    x = draws.systematic(p, 7, u)
    assert (x.sum(-1) == 7).all()
    assert torch.equal(x, cpu.systematic(p, 7, u))


def test_tree_pivotal_draws_are_those_of_the_cpu():
    p = probabilities(21, 6)
    tree = pivotal_tree(p.double())
    over = torch.cat([level.over for level in reversed(tree.levels)], -1)
    left = torch.cat([level.left for level in reversed(tree.levels)], -1)
    u = torch.rand(20, 3, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws.pivotal(p, 6, u, over, left), cpu.pivotal(p, 6, u))


def test_blocks():
    assert [rows.block_of(n) for n in (1, 16, 17, 4096, 100_000)] == [16, 16, 32, 4096, 4096]
