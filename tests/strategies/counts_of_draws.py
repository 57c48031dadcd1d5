"""Draws of subsets against the law they should have: a χ² test of the counts of whole subsets."""

import scipy.stats
import torch

DRAWS = 200_000
LEVEL = 1e-3 / 80  # there are fewer than 80 such tests in a file


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def chi_square(x, support, p):
    """The p-value of the counts of sets with more than 5 expected draws; 0 if an impossible one was drawn."""
    powers = 2.0 ** torch.arange(support.shape[-1], dtype=torch.float64)
    codes, order = (support @ powers).sort()
    found, counts = (x.double() @ powers).unique(return_counts=True)
    at = torch.searchsorted(codes, found)
    assert (codes[at] == found).all()
    observed = torch.zeros_like(codes).index_add(0, at, counts.double())
    expected = p[order] * len(x)
    if (observed[expected == 0] > 0).any():
        return 0.0
    likely = expected > 5
    observed, expected = observed[likely], expected[likely]
    return scipy.stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
