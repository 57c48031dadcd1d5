"""What may be given to a design, and what is said about the rest."""

import math
import re

import numpy as np
import pytest
import torch

import khot
from khot.constraints import capped_simplex, k_hot, rounded_k_hot
from khot.designs import (
    Brewer,
    ConditionalPoisson,
    KHotCategorical,
    KHotDistribution,
    PlackettLuce,
    Poisson,
    RandomSystematic,
    Systematic,
    TreePivotal,
)
from khot.designs.facade import DESIGNS as DESIGNS_BY_NAME
from khot.designs.facade import design_for
from strategies.design_examples import ALL, APPROXIMATE, CLOSED, ELIMINATIONS, RANDOM_ORDERS, probabilities

INSTEAD = {
    **dict.fromkeys(RANDOM_ORDERS, "given an order, use the ordered design"),
    Brewer: "take Sampford or ConditionalPoisson with the same probs",
}


@pytest.mark.parametrize("design", ALL)
def test_bad_arguments(design):
    name, pi = design.__name__, probabilities(5, 2)
    with pytest.raises(ValueError, match=f"{name}: give one of probs and logits, got both"):
        design(2, probs=pi, logits=pi)
    with pytest.raises(ValueError, match=f"{name}: give one of probs and logits, got neither"):
        design(2)
    with pytest.raises(ValueError, match=re.escape(f"{name}: k must satisfy 0 <= k <= n = 5, got k = 6")):
        design(6, probs=pi)
    with pytest.raises(TypeError, match=f"{name}: k must be a number, got bool"):
        design(True, probs=pi)
    with pytest.raises(TypeError, match=f"{name}: probs must have a floating-point dtype, got torch.int64"):
        design(2, probs=torch.ones(5, dtype=torch.long))
    with pytest.raises(TypeError, match=f"{name}: probs must be a torch.Tensor, got list"):
        design(2, probs=[0.5, 0.5])
    with pytest.raises(
        ValueError, match=re.escape(f"{name}: probs must lie in [0, 1], got values in [-0.5, 1.5]")
    ):
        design(2, probs=torch.tensor([1.0, 1.5, -0.5]))
    with pytest.raises(ValueError, match=f"{name}: probs must sum to k = 2 to within 2e-09, got the sum 2.1"):
        design(2, probs=torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64))
    with pytest.raises(ValueError, match=f"{name}: logits must not be NaN"):
        design(2, logits=torch.tensor([1.0, math.nan, 0.1]))
    with pytest.raises(
        ValueError, match=f"{name}: logits must have at least k = 2 entries above -inf, got 1"
    ):
        design(2, logits=torch.tensor([1.0, -math.inf, -math.inf]))
    with pytest.raises(
        ValueError, match=re.escape(f"{name}: logits must have at most k = 1 entries at +inf, got 2")
    ):
        design(1, logits=torch.tensor([1.0, math.inf, math.inf]))
    with pytest.raises(ValueError, match=f"{name}: probs must have at least one unit"):
        design(0, probs=torch.ones(3, 0))


@pytest.mark.parametrize("design", [ConditionalPoisson, RandomSystematic])
def test_a_k_that_is_not_whole(design):
    with pytest.raises(
        ValueError, match=r"k must be an integer, got k = 1.5; Systematic and TreePivotal take"
    ):
        design(1.5, logits=torch.zeros(4))


@pytest.mark.parametrize("design", ALL)
def test_sums_off_by_rounding_are_normalised(design):
    pi = torch.full((3000,), 1 / 3, dtype=torch.float32)
    pi[0] += 0.009
    made = design(1000, probs=pi)
    if design is not PlackettLuce:  # whose mean is an integral over conditional Poisson designs
        assert made.mean.dtype == torch.float32
        assert abs(made.mean.double().sum() - 1000) < 1e-4
    assert (made.sample((20,)).sum(-1) == 1000).all()
    with pytest.raises(ValueError, match=r"must sum to k = 1000 to within 0.01, got the sum 1000.0390"):
        design(1000, probs=pi + 1e-5)


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_nothing_and_everything(design, n):
    for k in (0, n):
        for made in (
            design(k, logits=torch.zeros(n)),
            design(k, probs=torch.full((n,), float(k > 0))),
        ):
            assert (made.sample((3,)) == float(k > 0)).all()
            assert made.sample_indices((3,)).shape == (3, k)
            assert (made.mean == float(k > 0)).all()
            if design in CLOSED:
                assert made.log_prob(made.mode) == 0
                assert made.entropy() == 0


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_logits(design, scale):
    x = torch.tensor([3.0, 1.0, 2.0, 2.0, -1.0, 0.0]) * scale
    made = design(3, logits=x)
    assert (made.sample((50,)) == torch.tensor([1.0, 0, 1, 1, 0, 0])).all()
    tied = design(2, logits=x)
    draws = tied.sample((4000,), generator=torch.Generator().manual_seed(0)).mean(0)
    assert (draws - torch.tensor([1, 0, 0.5, 0.5, 0, 0])).abs().max() < 0.04
    if design in CLOSED:
        assert abs(tied.entropy() - math.log(2)) < 1e-6


@pytest.mark.parametrize("design", ALL)
def test_infinite_logits(design):
    x = torch.tensor([math.inf, 0.0, 1.0, -math.inf, 0.5])
    made = design(3, logits=x)
    draws = made.sample((1000,))
    assert (draws[:, 0] == 1).all()
    assert (draws[:, 3] == 0).all()
    assert made.mean[0] == 1
    assert made.mean[3] == 0


def test_conditional_poisson_with_wide_logits_does_not_overflow():
    """n = 200, k = 100, θ ~ N(0, 10²): e_k is beyond float64."""
    theta = 10 * torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for k in (100, 60, 150):
        design = ConditionalPoisson(k, logits=theta)
        # The plain recursion in logarithms.
        table = [0.0] + [-math.inf] * k
        for value in theta.tolist():
            for j in range(k, 0, -1):
                table[j] = float(np.logaddexp(table[j], table[j - 1] + value))
        assert abs(design.log_normalizer - table[k]) < 1e-9 * abs(table[k])
        assert abs(design.mean.sum() - k) < 1e-10
        assert (design.sample((50,)).sum(-1) == k).all()


@pytest.mark.parametrize("design", ALL)
def test_conventions_of_torch(design):
    made = design(2, probs=probabilities(5, 2))
    assert isinstance(made, KHotDistribution)
    assert isinstance(made, torch.distributions.Distribution)
    assert isinstance(made.arg_constraints["probs"], capped_simplex)
    assert isinstance(made.support, k_hot)
    assert made.support.event_dim == 1
    assert design.has_enumerate_support
    assert design.exact_inclusion == (design not in APPROXIMATE)
    assert not made.has_rsample
    assert repr(made) == f"{design.__name__}(k: 2, probs: torch.Size([5]))"
    x = made.enumerate_support()
    assert x.shape == (10, 5)
    assert made.support.check(x).all()
    assert x.unique(dim=0).shape == (10, 5)
    assert made.expand((3,)).enumerate_support().shape == (10, 3, 5)
    assert made.expand((3,)).enumerate_support(expand=False).shape == (10, 1, 5)
    with pytest.raises(ValueError, match=r"at most 1000000 vectors, got C\(40, 20\) = 137846528820"):
        design(20, logits=torch.zeros(40)).enumerate_support()
    if design in [*CLOSED, *ELIMINATIONS]:
        with pytest.raises(ValueError, match="support"):
            made.log_prob(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]))
        assert made.expand((3,)).log_prob(x[0]).shape == (3,)
        assert made.log_prob(x[:, None]).shape == (10, 1)
    if design in ELIMINATIONS:
        for call in (made.entropy, lambda: made.mode):
            with pytest.raises(NotImplementedError, match="use log_prob over enumerate_support"):
                call()
    elif design in INSTEAD:
        for call in (made.entropy, lambda: made.log_prob(x), lambda: made.mode, lambda: made.joint_inclusion):
            with pytest.raises(NotImplementedError, match=INSTEAD[design]):
                call()
    elif design not in CLOSED:
        with pytest.raises(
            NotImplementedError, match=f"{design.__name__}: entropy has no closed form.* ConditionalPoisson"
        ):
            made.entropy()


def test_values_are_checked_whatever_the_default_of_torch():
    # torch.compile sets it to False, for the whole process.
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        with pytest.raises(ValueError, match=r"got the sum 2\.5"):
            Systematic(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.9]))
        Systematic(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.9]), validate_args=False)
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


def test_names():
    assert KHotCategorical is ConditionalPoisson
    assert not issubclass(Poisson, KHotDistribution)
    assert isinstance(Systematic(1.5, logits=torch.zeros(4)).support, rounded_k_hot)
    with pytest.raises(ValueError, match=r"Poisson: probs must lie in \[0, 1\]"):
        Poisson(probs=torch.tensor([1.5]))


@pytest.mark.parametrize("given", ["scores", "probs"])
def test_sample(given):
    x = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0))
    if given == "probs":
        x = khot.sigmoid_topk(x, 2, dim=1)
    for design in ("auto", *DESIGNS_BY_NAME):
        y = khot.sample(x, 2, design, given=given, dim=1, sample_shape=(5,))
        assert y.shape == (5, 4, 6, 3)
        assert (y.sum(2) == 2).all()
        assert not y.requires_grad
    mean = (
        khot.sample(x, 2, given="probs", dim=1, sample_shape=(20_000,)).mean(0) if given == "probs" else None
    )
    assert mean is None or (mean - x).abs().max() < 0.02
    one, two = (
        khot.sample(x, 2, given=given, dim=1, generator=torch.Generator().manual_seed(5)) for _ in range(2)
    )
    assert torch.equal(one, two)


def test_sample_with_a_mask():
    x = torch.zeros(6)
    mask = torch.tensor([True, True, False, True, False, True])
    for design in ("auto", *DESIGNS_BY_NAME):
        y = khot.sample(x, 2, design, mask=mask, sample_shape=(200,))
        assert (y[:, ~mask] == 0).all()
        assert (y.mean(0)[mask] > 0).all()


def test_sample_auto():
    assert design_for("auto", 1000, 10, "scores").__name__ == "ConditionalPoisson"
    assert design_for("auto", 1_000_000, 1000, "scores").__name__ == "RandomTreePivotal"
    assert design_for("auto", 1000, 990, "probs").__name__ == "ConditionalPoisson"
    assert design_for("auto", 1000, 10.5, "scores") is TreePivotal


def test_sample_bad_arguments():
    x = torch.zeros(4)
    with pytest.raises(
        ValueError,
        match=r"unknown design 'sampfrd'; known designs: auto, systematic, .*, sampford, brewer, pareto",
    ):
        khot.sample(x, 2, "sampfrd")
    with pytest.raises(ValueError, match="sample: given must be 'scores' or 'probs', got 'logits'"):
        khot.sample(x, 2, given="logits")
    with pytest.raises(TypeError, match="sample: x must have a floating-point dtype"):
        khot.sample(x.long(), 2)
    with pytest.raises(ValueError, match="probs must sum to k = 2"):
        khot.sample(x, 2, given="probs")
