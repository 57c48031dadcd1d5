"""Variances from π alone: by their definitions, in closed cases, and against true variances."""

import math
import re

import pytest
import torch

from khot.designs import Brewer, ConditionalPoisson, Systematic, Tille
from khot.designs.survey import (
    approximate_variance,
    horvitz_thompson_total,
    horvitz_thompson_variance,
    sen_yates_grundy_variance,
)
from strategies.design_examples import probabilities, subsets
from strategies.r_results import check_variances, committed

METHODS = ["deville1", "deville2", "deville3", "hajek"]


def by_definition(values, probs, method):
    """Over the drawn units, one by one, as in Matei & Tillé (2005)."""
    size = len(values)
    spare = [1 - p for p in probs]
    if method in ("deville1", "hajek"):
        c = [q * size / (size - 1) for q in spare]
    else:
        concentration = math.fsum((q / math.fsum(spare)) ** 2 for q in spare)
        c = [q / (1 - concentration) for q in spare]
    z = [v / p for v, p in zip(values, probs, strict=True)]
    if method == "deville3":
        centre = math.fsum(z) / size
    else:
        centre = math.fsum(w * v for w, v in zip(c, z, strict=True)) / math.fsum(c)
    return math.fsum(w * (v - centre) ** 2 for w, v in zip(c, z, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_by_definition(method):
    pi = probabilities(9, 4)
    y = torch.linspace(-1, 5, 9, dtype=torch.float64) ** 2
    x = subsets(9, 4)
    found = approximate_variance(y, x, pi, method)
    assert found.shape == (len(x),)
    for row, value in zip(x.bool(), found, strict=True):
        expected = by_definition(y[row].tolist(), pi[row].tolist(), method)
        assert value.item() == pytest.approx(expected, rel=1e-12)


def test_against_r():
    """`varest` of the package `sampling`, and least squares of R, as committed."""
    check_variances(committed("golden_variances.json"))


def test_by_hand():
    """Two units with π = ½ and ¼ and values 1 and 1: z = 2 and 4, 1 − π = ½ and ¾."""
    y, x = torch.ones(3, dtype=torch.float64), torch.tensor([1.0, 1, 0], dtype=torch.float64)
    pi = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    # B = (0.4)(2) + (0.6)(4) = 3.2; ½·1.44 + ¾·0.64 = 1.2.
    assert approximate_variance(y, x, pi, "deville1").item() == pytest.approx(2 * 1.2)
    # 1 − Σa² = 1 − 0.16 − 0.36 = 0.48.
    assert approximate_variance(y, x, pi, "deville2").item() == pytest.approx(1.2 / 0.48)
    # B = 3: ½ + ¾ = 1.25.
    assert approximate_variance(y, x, pi, "deville3").item() == pytest.approx(1.25 / 0.48)


@pytest.mark.parametrize("method", METHODS)
def test_closed_cases(method):
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(8, generator=generator, dtype=torch.float64)
    x = subsets(8, 3)
    # Simple random sampling: n²(1 − k/n)s²/k.
    found = approximate_variance(y, x, torch.full_like(y, 3 / 8), method)
    drawn = torch.stack([y[row] for row in x.bool()])
    torch.testing.assert_close(found, 64 * (1 - 3 / 8) * drawn.var(-1) / 3)
    pi = probabilities(8, 3)
    assert approximate_variance(3 * pi, x, pi, method).abs().max() < 1e-24
    # Certain units add nothing but their count to deville1.
    certain = torch.cat([pi, torch.ones(1, dtype=torch.float64)])
    more = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], -1)
    values = torch.cat([y, y[:1]])
    if method == "deville2":
        torch.testing.assert_close(
            approximate_variance(values, more, certain, method), approximate_variance(y, x, pi, method)
        )
    nothing = torch.zeros(3, dtype=torch.float64)
    assert approximate_variance(nothing + 2, nothing + 1, nothing + 1, method) == 0
    assert approximate_variance(nothing, nothing, nothing + 0.5, method) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("design", [ConditionalPoisson, Tille])
def test_near_the_true_variance(design, method):
    """On average over all draws, within a few per cent at a spread of π that a survey would have."""
    pi = probabilities(12, 6, spread=0.5)
    y = torch.linspace(1, 4, 12, dtype=torch.float64) ** 2
    made, x = design(6, probs=pi), subsets(12, 6)
    p = made.log_prob(x).exp()
    total = horvitz_thompson_total(y, x, pi)
    truth = (p * (total - y.sum()) ** 2).sum()
    assert abs((p * approximate_variance(y, x, pi, method)).sum() / truth - 1) < 0.06


def test_where_pairs_are_missing():
    """Systematic sampling of a trend: unbiased estimates there are none, which is said."""
    y = torch.arange(8.0, dtype=torch.float64)
    pi = torch.full_like(y, 0.5)
    design = Systematic(4, probs=pi)
    x = design.sample(generator=torch.Generator().manual_seed(0))
    for estimate in (horvitz_thompson_variance, sen_yates_grundy_variance):
        message = f"{estimate.__name__}: some pairs have π_ij = 0, .* use approximate_variance"
        with pytest.warns(UserWarning, match=message):
            estimate(y, x, design.joint_inclusion)
        estimate(y, x, ConditionalPoisson(4, probs=pi).joint_inclusion)
    assert approximate_variance(y, x, pi) > 0
    # A pair that no draw could have, since one of the two is never drawn, is not missing.
    settled = ConditionalPoisson(2, probs=torch.tensor([0.5, 0.5, 1.0, 0.0], dtype=torch.float64))
    never = ConditionalPoisson(2, probs=torch.tensor([0.6, 0.7, 0.7, 0.0], dtype=torch.float64))
    x = torch.tensor([1.0, 1, 0, 0], dtype=torch.float64)
    sen_yates_grundy_variance(y[:4], x, never.joint_inclusion)
    with pytest.warns(UserWarning, match="π_ij = 0"):
        sen_yates_grundy_variance(y[:4], x.roll(1), settled.joint_inclusion)


def test_a_design_without_joint_inclusion():
    design = Brewer(5, probs=probabilities(11, 5, spread=0.5))
    y = torch.rand(11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = design.sample((4000,), generator=torch.Generator().manual_seed(1))
    spread = horvitz_thompson_total(y, x, design.mean).var()
    assert abs(approximate_variance(y, x, design.mean).mean() / spread - 1) < 0.1


def test_messages():
    y = torch.ones(3)
    pi, x = torch.full((3,), 0.5), torch.tensor([1.0, 0, 0])
    with pytest.raises(ValueError, match="at least two drawn units of a row must have π < 1, or none"):
        approximate_variance(y, x, pi)
    with pytest.raises(
        ValueError, match=re.escape("method must be 'deville1', 'deville2', 'deville3' or 'hajek', got 'x'")
    ):
        approximate_variance(y, x, pi, "x")
    with pytest.raises(ValueError, match="drawn units must have π > 0"):
        approximate_variance(y, x, 0 * pi)
