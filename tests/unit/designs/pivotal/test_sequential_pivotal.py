"""The chain of duels, against duels played out one by one."""

import pytest
import torch

import khot
from khot.designs import RandomPivotal, SequentialPivotal
from strategies.design_examples import SIZES, probabilities, subsets


def law_of_duels(pi):
    """P(set) by following both outcomes of every duel between the carried unit and the next."""
    law = {}

    def settle(chosen, carried, fraction, i, p):
        if p == 0:
            return
        if i == len(pi):
            if carried is not None and fraction > 0.5:
                chosen = chosen | {carried}
            law[chosen] = law.get(chosen, 0.0) + p
            return
        b = pi[i]
        if b in (0.0, 1.0):
            settle(chosen | {i} if b else chosen, carried, fraction, i + 1, p)
        elif carried is None:
            settle(chosen, i, b, i + 1, p)
        elif fraction + b < 1 - 1e-12:
            total = fraction + b
            settle(chosen, carried, total, i + 1, p * fraction / total)
            settle(chosen, i, total, i + 1, p * b / total)
        else:
            rest, room = max(0.0, fraction + b - 1), 2 - fraction - b
            settle(chosen | {carried}, i if rest else None, rest, i + 1, p * (1 - b) / room)
            settle(chosen | {i}, carried if rest else None, rest, i + 1, p * (1 - fraction) / room)

    settle(frozenset(), None, 0.0, 0, 1.0)
    return law


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("seed", [0, 1])
def test_log_prob_is_that_of_the_duels(n, k, seed):
    pi = probabilities(n, k, seed)
    law = law_of_duels(pi.tolist())
    x = subsets(n, k)
    truth = [law.get(frozenset(row.nonzero().flatten().tolist()), 0.0) for row in x]
    p = SequentialPivotal(k, probs=pi).log_prob(x).exp()
    torch.testing.assert_close(p, torch.tensor(truth, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_settled_units_take_no_part():
    pi = torch.tensor([1.0, 0.5, 0.0, 0.25, 1.0, 0.75, 0.5, 0.0], dtype=torch.float64)
    law = law_of_duels(pi.tolist())
    design = SequentialPivotal(4, probs=pi)
    for row in subsets(8, 4):
        truth = law.get(frozenset(row.nonzero().flatten().tolist()), 0.0)
        assert abs(design.log_prob(row).exp() - truth) < 1e-12


def test_spread_along_the_list_and_repelled():
    pi = probabilities(200, 60)
    design = SequentialPivotal(60, probs=pi)
    x = design.sample((500,), generator=torch.Generator().manual_seed(0))
    assert ((x - pi).cumsum(-1).abs() < 1 + 1e-9).all()
    covariance = design.covariance_matrix - torch.diag(design.variance)
    assert (covariance <= 1e-15).all()


@pytest.mark.parametrize("design", [SequentialPivotal, RandomPivotal])
@pytest.mark.parametrize("k", [1, 1000, 500_000, 999_999])
def test_exactly_k_of_a_million(design, k):
    pi = khot.sigmoid_topk(3 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0)), k)
    draw = design(k, probs=pi).sample(generator=torch.Generator().manual_seed(1))
    assert draw.dtype == torch.float32
    assert draw.sum(dtype=torch.float64) == k
    assert (draw[pi == 0] == 0).all()
    assert (draw[pi == 1] == 1).all()


def test_many_draws_in_parts():
    """More uniform variables than are held at a time."""
    pi = probabilities(2000, 3)
    x = SequentialPivotal(3, probs=pi).sample_indices((5000,), generator=torch.Generator().manual_seed(0))
    assert x.shape == (5000, 3)
    assert (x.diff(dim=-1) > 0).all()
