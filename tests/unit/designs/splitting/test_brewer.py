"""Brewer's method: the law of ordered draws by recursion, with the steps as Tillé (2006) has them."""

import pytest
import scipy.stats
import torch

from khot.designs import Brewer
from strategies.counts_of_draws import DRAWS, LEVEL, chi_square, generator
from strategies.design_examples import probabilities, subsets


def law(pi, k):
    """P(s) over all sets: steps P(i) ∝ πᵢ(k − a − πᵢ)/(k − a − πᵢ(k − r + 1)), a the sum of π drawn."""
    pi = pi.tolist()
    sets = {frozenset(): 1.0}
    for r in range(1, k + 1):
        after = {}
        for drawn, chance in sets.items():
            a = sum(pi[j] for j in drawn)
            weights = {
                i: pi[i] * (k - a - pi[i]) / (k - a - pi[i] * (k - r + 1))
                for i in range(len(pi))
                if i not in drawn
            }
            for i, weight in weights.items():
                more = drawn | {i}
                after[more] = after.get(more, 0.0) + chance * weight / sum(weights.values())
        sets = after
    x = subsets(len(pi), k)
    p = [sets[frozenset(row.nonzero().flatten().tolist())] for row in x]
    return x, torch.tensor(p, dtype=torch.float64)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 2), (6, 3), (7, 6), (8, 4)])
def test_counts_of_subsets(n, k):
    pi = probabilities(n, k)
    x, p = law(pi, k)
    torch.testing.assert_close(p @ x, pi, rtol=0, atol=1e-12)  # the method is exact
    draws = Brewer(k, probs=pi).sample((DRAWS,), generator=generator())
    assert chi_square(draws, x, p) > LEVEL


def test_first_moments_of_many_units():
    pi = probabilities(60, 12)
    x = Brewer(12, probs=pi).sample((20_000,), generator=generator(1))
    z = (x.mean(0) - pi) / (pi * (1 - pi) / 20_000).sqrt()
    assert z.abs().max() < scipy.stats.norm.isf(LEVEL / 120)


def test_certain_and_impossible_units_beside_rows_without():
    pi = torch.tensor([[1.0, 0.5, 0.0, 0.25, 0.25, 1.0], [0.5] * 6, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]])
    x = Brewer(3, probs=pi).sample((20_000,), generator=generator())
    assert (x.sum(-1) == 3).all()
    assert (x[:, pi == 1] == 1).all()
    assert (x[:, pi == 0] == 0).all()
    assert (x.mean(0) - pi).abs().max() < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_units(dtype):
    x = Brewer(20, probs=probabilities(100_000, 20, dtype=dtype)).sample((2,), generator=generator())
    assert x.dtype == dtype
    assert (x.sum(-1) == 20).all()
