"""Estimates and their variances: expectations over the whole support, and limits."""

import math

import pytest
import torch

from khot.designs import (
    ConditionalPoisson,
    Midzuno,
    SequentialPivotal,
    SimpleRandom,
    Stratified,
    Systematic,
    Tille,
    TreePivotal,
    get,
    names,
)
from khot.designs.survey import (
    approximate_variance,
    design_effect,
    hajek_mean,
    horvitz_thompson_mean,
    horvitz_thompson_total,
    horvitz_thompson_variance,
    inclusion_probabilities,
    sen_yates_grundy_variance,
)
from strategies.design_examples import probabilities, subsets

Y = torch.tensor([3.0, -1.0, 4.0, 1.5, 9.0, 2.6, 5.3], dtype=torch.float64)
X = subsets(7, 3)


def capped(sizes, k):
    """The definition, round by round."""
    held = torch.zeros_like(sizes, dtype=torch.bool)
    while True:
        pi = torch.where(held, 1.0, sizes * (k - held.sum()) / sizes[~held].sum())
        if (pi <= 1).all():
            return pi
        held |= pi >= 1


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (10, 3), (10, 9), (50, 25), (7.0, 2.5)])
def test_inclusion_probabilities(n, k, spread):
    sizes = (spread * torch.randn(3, int(n), generator=torch.Generator().manual_seed(1)).double()).exp()
    pi = inclusion_probabilities(sizes, k)
    torch.testing.assert_close(pi, torch.stack([capped(row, k) for row in sizes]))
    torch.testing.assert_close(pi.sum(-1), torch.full((3,), float(k), dtype=torch.float64))
    torch.testing.assert_close(inclusion_probabilities(1e200 * sizes, k), pi)
    torch.testing.assert_close(inclusion_probabilities(1e-200 * sizes, k), pi)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [design for design in map(get, names()) if design.takes_fractions])
def test_inclusion_probabilities_have_the_digits_of_their_dtype(kind, dtype):
    """For any k: its own designs take them, and the default dtype of torch has no say."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        n = int(torch.randint(2, 60, (1,), generator=generator))
        k = n * torch.rand((), generator=generator, dtype=torch.float64).item()
        sizes = torch.rand(n, generator=generator, dtype=torch.float64).exp().to(dtype)
        pi = inclusion_probabilities(sizes, k)
        assert abs(pi.double().sum().item() - k) < 4 * n * torch.finfo(dtype).eps
        assert abs(kind(k, probs=pi).sample((5,)).sum(-1) - k).max() < 1


def test_inclusion_probabilities_at_the_edges():
    sizes = torch.tensor([0.0, 1.0, 0.0, 5.0, 2.0])
    assert torch.equal(inclusion_probabilities(sizes, 0), torch.zeros(5))
    assert torch.equal(inclusion_probabilities(sizes, 3), torch.tensor([0.0, 1, 0, 1, 1]))
    assert torch.equal(inclusion_probabilities(torch.ones(4), 4), torch.ones(4))
    assert torch.equal(inclusion_probabilities(torch.zeros(4), 0), torch.zeros(4))
    torch.testing.assert_close(inclusion_probabilities(sizes, 2), torch.tensor([0.0, 1 / 3, 0, 1, 2 / 3]))
    # Exactly 1 is 1, whichever side rounding falls.
    assert inclusion_probabilities(torch.tensor([1.0, 1.0, 2.0]), 2)[2] == 1
    tiny = torch.tensor([1e-310, 0.0], dtype=torch.float64)
    assert torch.equal(inclusion_probabilities(tiny, 1), torch.tensor([1.0, 0.0], dtype=torch.float64))


def test_inclusion_probabilities_gradcheck():
    sizes = torch.tensor([1.0, 2.5, 3.0, 14.0, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: inclusion_probabilities(s, 2), sizes)


def test_inclusion_probabilities_bad_arguments():
    name = "inclusion_probabilities"
    with pytest.raises(ValueError, match=rf"{name}: k must satisfy 0 <= k <= n = 2, got k = 3"):
        inclusion_probabilities(torch.ones(2), 3)
    with pytest.raises(
        ValueError, match=rf"{name}: sizes must be finite and not negative, got values in \[-1, 1\]"
    ):
        inclusion_probabilities(torch.tensor([1.0, -1.0]), 1)
    with pytest.raises(ValueError, match=rf"{name}: sizes must be finite"):
        inclusion_probabilities(torch.tensor([1.0, math.inf]), 1)
    with pytest.raises(
        ValueError, match=rf"{name}: at least k = 2 sizes of each row must be positive, got 1"
    ):
        inclusion_probabilities(torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]), 2)
    with pytest.raises(TypeError, match=rf"{name}: sizes must have a floating-point dtype, got torch.int64"):
        inclusion_probabilities(torch.ones(2, dtype=torch.long), 1)


@pytest.mark.parametrize(
    "design", [ConditionalPoisson, Tille, Midzuno, TreePivotal, SequentialPivotal, Systematic]
)
def test_totals_are_unbiased(design):
    pi = probabilities(7, 3)
    made = design(3, probs=pi)
    p = made.log_prob(X).exp()
    totals = horvitz_thompson_total(Y, X, pi)
    torch.testing.assert_close(p @ totals, Y.sum())
    torch.testing.assert_close(p @ horvitz_thompson_mean(Y, X, pi), Y.mean())
    variance = p @ totals**2 - (p @ totals) ** 2
    simple = SimpleRandom(3, 7, dtype=torch.float64)
    q = simple.log_prob(X).exp()
    by_simple = horvitz_thompson_total(Y, X, simple.mean)
    torch.testing.assert_close(
        design_effect(Y, made.joint_inclusion), variance / (q @ by_simple**2 - (q @ by_simple) ** 2)
    )


@pytest.mark.parametrize("design", [ConditionalPoisson, Tille, Midzuno, SimpleRandom])
def test_variances_are_unbiased(design):
    """For designs whose π_ij are all positive."""
    made = (
        SimpleRandom(3, 7, dtype=torch.float64)
        if design is SimpleRandom
        else design(3, probs=probabilities(7, 3, spread=0.7))
    )
    joint, p = made.joint_inclusion, made.log_prob(X).exp()
    assert (joint > 0).all()
    totals = horvitz_thompson_total(Y, X, made.mean)
    variance = p @ totals**2 - (p @ totals) ** 2
    torch.testing.assert_close(p @ horvitz_thompson_variance(Y, X, joint), variance)
    estimates = sen_yates_grundy_variance(Y, X, joint)
    torch.testing.assert_close(p @ estimates, variance)
    assert (estimates >= 0).all()
    proportional = sen_yates_grundy_variance(2 * made.mean, X, joint)
    torch.testing.assert_close(proportional, torch.zeros_like(proportional), rtol=0, atol=1e-12)


def test_variances_in_strata():
    strata = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    made = Stratified(
        strata, [SimpleRandom(2, 3, dtype=torch.float64), SimpleRandom(2, 4, dtype=torch.float64)]
    )
    x = subsets(7, 4)
    p = made.log_prob(x).exp()
    x, p = x[p > 0], p[p > 0]
    totals = horvitz_thompson_total(Y, x, made.mean)
    variance = p @ totals**2 - Y.sum() ** 2
    torch.testing.assert_close(p @ sen_yates_grundy_variance(Y, x, made.joint_inclusion), variance)
    # The textbook formula: Σ_h n_h²(1 − k_h/n_h) S_h²/k_h.
    by_stratum = [n**2 * (1 - 2 / n) * Y[strata == h].var() / 2 for h, n in enumerate((3, 4))]
    torch.testing.assert_close(variance, sum(by_stratum))


def test_hajek_mean():
    pi = probabilities(7, 3)
    constant = torch.full_like(Y, 2.5)
    torch.testing.assert_close(hajek_mean(constant, X, pi), torch.full((35,), 2.5, dtype=torch.float64))
    weights = (X / pi) / (X / pi).sum(-1, keepdim=True)
    torch.testing.assert_close(hajek_mean(Y, X, pi), weights @ Y)
    with pytest.raises(ValueError, match="hajek_mean: indicators must have at least one unit"):
        hajek_mean(Y, torch.zeros(7), pi)


def test_simple_random_sampling_has_design_effect_one():
    torch.testing.assert_close(
        design_effect(Y, SimpleRandom(3, 7, dtype=torch.float64).joint_inclusion),
        torch.tensor(1.0, dtype=torch.float64),
    )
    pi = probabilities(7, 3)
    joint = ConditionalPoisson(3, probs=pi).joint_inclusion
    assert design_effect(3 * pi, joint) < 1e-12  # y proportional to π: nothing to vary
    assert design_effect(torch.ones(7, dtype=torch.float64), joint) == math.inf
    assert design_effect(torch.ones(3), SimpleRandom(3, 3).joint_inclusion) == 1
    assert design_effect(torch.zeros(7), joint) == 1


def test_batches():
    pi = torch.stack([probabilities(7, 3, seed) for seed in range(2)])
    made = ConditionalPoisson(3, probs=pi)
    x = made.sample((5,), generator=torch.Generator().manual_seed(0))
    y = torch.stack([Y, Y**2])
    totals = horvitz_thompson_total(y, x, pi)
    variances = sen_yates_grundy_variance(y, x, made.joint_inclusion)
    other = horvitz_thompson_variance(y, x, made.joint_inclusion)
    assert totals.shape == variances.shape == other.shape == (5, 2)
    assert design_effect(y, made.joint_inclusion).shape == (2,)
    for b in range(2):
        one = ConditionalPoisson(3, probs=pi[b]).joint_inclusion
        torch.testing.assert_close(variances[:, b], sen_yates_grundy_variance(y[b], x[:, b], one))
        torch.testing.assert_close(other[:, b], horvitz_thompson_variance(y[b], x[:, b], one))
        torch.testing.assert_close(totals[:, b], (x[:, b] * y[b] / pi[b]).sum(-1))


def test_what_was_not_drawn_is_not_read():
    """Values of others may be missing, and have no gradient."""
    pi = torch.tensor([0.4, 0.7, 0.9, 0.0], dtype=torch.float64)
    x = torch.tensor([True, False, True, False])
    y = torch.tensor([1.0, math.nan, 3.0, math.inf], dtype=torch.float64, requires_grad=True)
    joint = ConditionalPoisson(2, probs=pi).joint_inclusion
    for estimate in (
        approximate_variance(y, x, pi),
        horvitz_thompson_total(y, x, pi),
        hajek_mean(y, x, pi),
        sen_yates_grundy_variance(y, x, joint),
        horvitz_thompson_variance(y, x, joint),
    ):
        (gradient,) = torch.autograd.grad(estimate, y)
        assert estimate.isfinite()
        assert gradient.isfinite().all()
        assert (gradient[~x] == 0).all()
    y = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    with pytest.raises(ValueError, match="drawn units must have π > 0"):
        horvitz_thompson_total(y, torch.ones(4), pi)
    joint = SequentialPivotal(2, probs=torch.tensor([0.5, 0.5, 1.0, 0.0]).double()).joint_inclusion
    with pytest.raises(ValueError, match="pairs that were drawn must have π_ij > 0"):
        sen_yates_grundy_variance(y, torch.tensor([1.0, 1, 0, 0]), joint)
    with pytest.raises(ValueError, match="design_effect: y must be 0 where π is 0"):
        design_effect(y, joint)
    with pytest.raises(
        ValueError, match=r"over the same n units, got y \(4,\), indicators \(3,\), probs \(4,\)"
    ):
        horvitz_thompson_total(y, torch.ones(3), pi)
    with pytest.raises(TypeError, match="horvitz_thompson_total: y must have a floating-point dtype"):
        horvitz_thompson_total(y.long(), x, pi)


@pytest.mark.parametrize(
    "estimate", [horvitz_thompson_total, horvitz_thompson_mean, hajek_mean, approximate_variance]
)
def test_indicators_are_zeros_and_ones(estimate):
    y, pi = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.full((4,), 0.5)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0])
    for same in (x.bool(), x.long(), x.double()):
        torch.testing.assert_close(estimate(y, same, pi), estimate(y, x, pi))
    name = estimate.__name__
    for wrong, shown in ((0.5, "0.5"), (2.0, "2"), (-1.0, "-1"), (math.nan, "nan")):
        with pytest.raises(ValueError, match=f"{name}: indicators must be zeros and ones, got {shown}"):
            estimate(y, torch.where(x > 0, wrong, 0.0), pi)
    with pytest.raises(TypeError, match=f"{name}: indicators must be boolean, or zeros and ones, got"):
        estimate(y, x * 1j, pi)
