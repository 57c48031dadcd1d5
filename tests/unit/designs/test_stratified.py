"""Strata: independent designs put together."""

import math

import pytest
import torch

from khot.designs import (
    ConditionalPoisson,
    RandomSystematic,
    SequentialPivotal,
    SimpleRandom,
    Stratified,
    Systematic,
    Tille,
    TreePivotal,
)
from strategies.design_examples import probabilities, subsets

STRATA = torch.tensor([0, 1, 0, 2, 1, 0, 1, 0])
SIZES = [2, 1, 1]


def pi_by_stratum(seed=0):
    pi = torch.empty(8, dtype=torch.float64)
    for h, k in enumerate(SIZES):
        pi[h == STRATA] = probabilities(int((h == STRATA).sum()), k, seed + h)
    return pi


@pytest.mark.parametrize("design", [ConditionalPoisson, TreePivotal, SequentialPivotal, Systematic, Tille])
def test_sums_over_all_subsets(design):
    pi = pi_by_stratum()
    made = Stratified(STRATA, design, k=SIZES, probs=pi)
    x = subsets(8, 4)
    p = made.log_prob(x).exp()
    assert abs(p.sum() - 1) < 1e-12
    counts = torch.stack([x[:, h == STRATA].sum(-1) for h in range(3)], -1)
    right = (counts == torch.tensor(SIZES)).all(-1)
    assert (p[~right] == 0).all()
    torch.testing.assert_close(p @ x, pi)
    torch.testing.assert_close(made.mean, pi)
    torch.testing.assert_close(made.joint_inclusion, torch.einsum("s,si,sj->ij", p, x, x))
    if design is not Tille:
        torch.testing.assert_close(made.entropy(), torch.special.entr(p).sum())
        torch.testing.assert_close(made.log_prob(made.mode).exp(), p.max())


def test_draws():
    pi = pi_by_stratum()
    for design in (ConditionalPoisson, RandomSystematic):
        made = Stratified(STRATA, design, k=SIZES, probs=pi)
        x = made.sample((20_000,), generator=torch.Generator().manual_seed(0))
        for h, k in enumerate(SIZES):
            assert (x[:, h == STRATA].sum(-1) == k).all()
        z = (x.mean(0) - pi) / (pi * (1 - pi) / 20_000).sqrt().clamp_min(1e-12)
        assert z.abs().max() < 4.5
        indices = made.sample_indices((50,), generator=torch.Generator().manual_seed(0))
        assert (indices.diff(dim=-1) > 0).all()
        assert torch.equal(x, made.sample((20_000,), generator=torch.Generator().manual_seed(0)))


def test_designs_of_different_kinds_in_a_batch():
    parts = [
        Systematic(2, probs=torch.stack([probabilities(4, 2, seed) for seed in range(3)])),
        SimpleRandom(1, 3, (3,), dtype=torch.float64),
        ConditionalPoisson(1, logits=torch.zeros(3, 1, dtype=torch.float64)),
    ]
    made = Stratified(STRATA, parts)
    assert (made.k, made.n, made.batch_shape) == (4, 8, (3,))
    assert made.sample((5,)).shape == (5, 3, 8)
    assert made.joint_inclusion.shape == (3, 8, 8)
    x = made.sample((5,))
    truth = sum(part.log_prob(x[..., h == STRATA]) for h, part in enumerate(parts))
    torch.testing.assert_close(made.log_prob(x), truth)
    wide = made.expand((2, 3))
    assert wide.sample((5,)).shape == (5, 2, 3, 8)
    assert wide.entropy().shape == (2, 3)
    assert made.parts[0].k == 2


def test_gradients_reach_the_scores():
    scores = torch.randn(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    x = Stratified(STRATA, TreePivotal, k=SIZES, scores=scores).mode

    def values(s):
        made = Stratified(STRATA, TreePivotal, k=SIZES, scores=s)
        return made.log_prob(x), made.mean, made.joint_inclusion

    assert torch.autograd.gradcheck(values, scores)


def test_bad_arguments():
    pi = pi_by_stratum()
    with pytest.raises(ValueError, match=r"strata must be 0 … H − 1, each with a unit, got \[0, 2\]"):
        Stratified(torch.tensor([0, 2]), Systematic, k=[1, 1], probs=torch.ones(2))
    with pytest.raises(ValueError, match=r"strata must be integers of shape \(n,\), got torch.float32"):
        Stratified(torch.zeros(2), Systematic, k=[1], probs=torch.ones(2))
    with pytest.raises(ValueError, match=r"one size for each of 3 strata, got \[1\]"):
        Stratified(STRATA, Systematic, k=[1], probs=pi)
    with pytest.raises(ValueError, match="one size for each of 3 strata, got None"):
        Stratified(STRATA, Systematic, probs=pi)
    with pytest.raises(ValueError, match=r"probs must have shape \(…, 8\), got \(7,\)"):
        Stratified(STRATA, Systematic, k=SIZES, probs=pi[:7])
    with pytest.raises(ValueError, match=r"Stratified: stratum 0: probs must sum to k = 1"):
        Stratified(STRATA, Systematic, k=[1, 1, 1], probs=pi)
    with pytest.raises(ValueError, match=r"over strata of \[4, 3, 1\] units, got \[4\]"):
        Stratified(STRATA, [SimpleRandom(1, 4)])
    with pytest.raises(ValueError, match="k, probs and scores are for a class"):
        Stratified(STRATA, [SimpleRandom(1, 4)], k=[1])
    with pytest.raises(ValueError, match="one batch shape"):
        Stratified(STRATA, [SimpleRandom(1, 4), SimpleRandom(1, 3, (2,)), SimpleRandom(1, 1)])
    with pytest.raises(ValueError, match=r"whole numbers of units, got k = 1\.5"):
        Stratified(torch.zeros(3, dtype=torch.long), Systematic, k=[1.5], scores=torch.zeros(3))
    made = Stratified(STRATA, Systematic, k=SIZES, probs=pi)
    with pytest.raises(ValueError, match="support"):
        made.log_prob(torch.ones(8))
    wrong = torch.tensor([1.0, 0, 1, 0, 0, 1, 0, 1], dtype=torch.float64)
    assert made.log_prob(wrong) == -math.inf
