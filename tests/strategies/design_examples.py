"""Designs and inclusion probabilities that the tests of this folder share."""

import itertools

import torch

import khot
from khot.designs import (
    AdjustedPareto,
    Brewer,
    ConditionalPoisson,
    Midzuno,
    Pareto,
    PlackettLuce,
    RandomPivotal,
    RandomSystematic,
    RandomTreePivotal,
    Sampford,
    SequentialPivotal,
    Systematic,
    Tille,
    TreePivotal,
)

CLOSED = [Systematic, TreePivotal, SequentialPivotal, ConditionalPoisson]
ELIMINATIONS = [Tille, Midzuno]  # log_prob and joint inclusion, but no entropy and no mode
RANDOM_ORDERS = [RandomSystematic, RandomTreePivotal, RandomPivotal]
DESIGNS = [*CLOSED, *ELIMINATIONS, *RANDOM_ORDERS, Sampford, Brewer]
APPROXIMATE = [Pareto, AdjustedPareto, PlackettLuce]
ALL = [*DESIGNS, *APPROXIMATE]
SIZES = [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 1), (7, 6), (8, 3), (10, 5)]


def probabilities(n, k, seed=0, spread=1.5, dtype=torch.float64):
    x = spread * torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return khot.sigmoid_topk(x, k).to(dtype)


def subsets(n, k):
    """All k-hot vectors, by itertools."""
    rows = [[float(i in chosen) for i in range(n)] for chosen in itertools.combinations(range(n), k)]
    return torch.tensor(rows, dtype=torch.float64).view(-1, n)


def by_scores(design, k, scores, **options):
    """The design at scores: its logits, if it takes nothing else."""
    return design(k, **{"scores" if "scores" in design.parameters else "logits": scores}, **options)


def by_probs(design, k, probs, **options):
    """The design at inclusion probabilities: their logarithms as logits, if it takes nothing else."""
    if "probs" in design.parameters:
        return design(k, probs=probs, **options)
    settled = torch.where(probs == 1, torch.inf, torch.where(probs == 0, -torch.inf, 0.0)).to(probs)
    return design(k, logits=torch.where(settled == 0, probs.log(), settled), **options)
