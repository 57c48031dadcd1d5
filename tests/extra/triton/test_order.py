"""Hard top-k and the rounds of a tournament by Triton's interpreter."""

import pytest
import torch

from khot.kernels import cpu, rounds
from khot.kernels.triton import order
from khot.kernels.triton import rounds as kernels
from strategies.seeded import randn


@pytest.mark.usefixtures("programs")
def test_hard_topk_and_its_ties():
    x = torch.randint(0, 4, (4, 50), generator=torch.Generator().manual_seed(0)).float()
    x[1, 3], x[1, 7], x[2, 5], x[3, :20] = torch.nan, -0.0, torch.inf, -torch.inf
    k = torch.tensor([[0], [3], [20], [40]])
    for mask in (None, x > 0):
        assert torch.equal(order.hard_topk(x, k, mask), cpu.hard_topk(x, k, mask))
    assert torch.equal(order.hard_topk(x.bfloat16(), k).float(), cpu.hard_topk(x, k))
    y, all_of_them = randn(3, 50), torch.tensor([[1], [49], [50]])
    assert torch.equal(order.hard_topk(y, all_of_them), cpu.hard_topk(y, all_of_them))


def test_hard_topk_of_a_long_row():
    x = randn(1, 70_000).round(decimals=2)  # ties
    assert torch.equal(order.hard_topk(x, torch.tensor([[12_345]])), cpu.hard_topk(x, 12_345))


@pytest.mark.usefixtures("programs")
def test_a_round_of_a_tournament():
    """Rows of their own size: all meet, some pass alone, one is done, one is empty."""
    m = torch.tensor([[41], [40], [11], [7], [0]])
    t = torch.tensor([[21], [30], [6], [7], [0]])
    v = randn(5, 41).sort(-1, descending=True).values.requires_grad_()
    blended, share = kernels.tournament_round(v.detach(), m, t, 30)
    expected = rounds.tournament_round(v, m, t, 30)
    torch.testing.assert_close((blended, share), tuple(a.detach() for a in expected))
    for row, (many, left) in enumerate(zip(m.flatten().tolist(), t.flatten().tolist(), strict=True)):
        alone = 2 * left - many  # in slices, which the kernel does not take
        best, other = v[row, alone:left].detach(), v[row, left:many].flip(-1).detach()
        torch.testing.assert_close(
            blended[row, alone:left], torch.lerp(other, best, (best - other).sigmoid())
        )
        assert (share[row, :alone] == 1).all()
    g, h = randn(5, 30, seed=1), randn(5, 41, seed=2)
    (grad,) = torch.autograd.grad(expected, [v], [g, h])
    torch.testing.assert_close(kernels.tournament_round_gradient(v.detach(), m, t, g, h), grad)
    torch.testing.assert_close(rounds.tournament_round_gradient(v.detach(), m, t, g, h), grad)
