"""What may be given to a design, and what is said about the rest."""

import copy
import math
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch

import khot
from khot.constraints import capped_simplex, k_hot, rounded_k_hot
from khot.designs import (
    Brewer,
    ConditionalPoisson,
    Cube,
    KHotCategorical,
    KHotDistribution,
    PlackettLuce,
    Poisson,
    RandomSystematic,
    SimpleRandom,
    Stratified,
    Systematic,
    Tille,
)
from khot.designs.survey import inclusion_probabilities
from strategies.design_examples import (
    ALL,
    APPROXIMATE,
    CLOSED,
    ELIMINATIONS,
    RANDOM_ORDERS,
    by_probs,
    by_scores,
    probabilities,
)

INSTEAD = {
    **dict.fromkeys(RANDOM_ORDERS, "given an order, use the ordered design"),
    Brewer: "take Sampford or ConditionalPoisson with the same probs",
}


@pytest.mark.parametrize("design", ALL)
def test_bad_arguments(design):
    name, x = design.__name__, torch.zeros(5)
    argument = "scores" if "scores" in design.parameters else "logits"
    with pytest.raises(ValueError, match=re.escape(f"{name}: k must satisfy 0 <= k <= n = 5, got k = 6")):
        by_scores(design, 6, x)
    for wrong in (True, np.True_, "2", torch.tensor(2)):
        with pytest.raises(TypeError, match=f"{name}: k must be a number, got {type(wrong).__name__}"):
            by_scores(design, wrong, x)
    with pytest.raises(TypeError, match=f"{name}: {argument} must have a floating-point dtype"):
        by_scores(design, 2, x.long())
    with pytest.raises(TypeError, match=f"{name}: {argument} must be a torch.Tensor, got list"):
        by_scores(design, 2, [0.5, 0.5])
    with pytest.raises(ValueError, match=f"{name}: {argument} must not be NaN"):
        by_scores(design, 2, torch.tensor([1.0, math.nan, 0.1]))
    if "logits" in design.parameters:
        message = f"{name}: logits must have at most k = 1 entries at +inf, got 2"
        with pytest.raises(ValueError, match=re.escape(message)):
            design(1, logits=torch.tensor([1.0, math.inf, math.inf]))
    with pytest.raises(ValueError, match=f"{name}: {argument} must have at least one unit"):
        by_scores(design, 0, torch.ones(3, 0))


@pytest.mark.parametrize("design", [design for design in ALL if "scores" in design.parameters])
def test_more_than_k_scores_at_infinity_share_k(design):
    """As in `khot.topk`: the law of k of these alone."""
    scores = torch.tensor([[1.0, math.inf, math.inf, -2.0, math.inf]], dtype=torch.float64)
    made = design(2, scores=scores)
    shared = torch.tensor([[0, 2 / 3, 2 / 3, 0, 2 / 3]], dtype=torch.float64)
    torch.testing.assert_close(made.probs, shared)
    x = made.sample((3000,), generator=torch.Generator().manual_seed(0))
    assert (x.sum(-1) == 2).all()
    assert (x.mean(0) - shared).abs().max() < 5 * (2 / 9 / 3000) ** 0.5


@pytest.mark.parametrize("design", [design for design in ALL if design is not PlackettLuce])
def test_bad_probabilities(design):
    name, pi = design.__name__, probabilities(5, 2)
    known = ", ".join(design.parameters)
    with pytest.raises(ValueError, match=f"{name}: give one of {known}, got probs and scores"):
        design(2, probs=pi, scores=pi)
    with pytest.raises(ValueError, match=f"{name}: give one of {known}, got none"):
        design(2)
    with pytest.raises(
        ValueError, match=re.escape(f"{name}: probs must lie in [0, 1], got values in [-0.5, 1.5]")
    ):
        design(2, probs=torch.tensor([1.0, 1.5, -0.5]))
    with pytest.raises(ValueError, match=f"{name}: probs must sum to k = 2 to within 2e-09, got the sum 2.1"):
        design(2, probs=torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64))


@pytest.mark.parametrize("design", ALL)
def test_logits_only_where_they_are_natural_parameters(design):
    given = {"probs": probabilities(4, 2), "scores": torch.zeros(4), "logits": torch.zeros(4)}
    assert ("logits" in design.parameters) == (design in (ConditionalPoisson, PlackettLuce))
    for argument, value in given.items():
        if argument in design.parameters:
            assert design(2, **{argument: value}).sample().sum() == 2
        else:
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{argument}'"):
                design(2, **{argument: value})


@pytest.mark.parametrize("design", [design for design in ALL if design is not PlackettLuce])
def test_scores_are_those_of_sigmoid_topk(design):
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(design(2, scores=x).probs, khot.sigmoid_topk(x, 2))
    if design.exact_inclusion:
        torch.testing.assert_close(design(2, scores=x).mean, khot.sigmoid_topk(x, 2))


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("k", [2.0, np.int64(2), np.float32(2), np.uint8(2)])
def test_whole_numbers_of_every_type(design, k):
    made = by_scores(design, k, torch.zeros(5))
    assert type(made.k) is int
    assert torch.equal(
        made.sample(generator=torch.Generator().manual_seed(0)),
        by_scores(design, 2, torch.zeros(5)).sample(generator=torch.Generator().manual_seed(0)),
    )


@pytest.mark.parametrize("design", [ConditionalPoisson, RandomSystematic])
def test_a_k_that_is_not_whole(design):
    with pytest.raises(
        ValueError, match=r"k must be an integer, got k = 1.5; Systematic and TreePivotal take"
    ):
        by_scores(design, 1.5, torch.zeros(4))


@pytest.mark.parametrize("design", ALL)
def test_sums_off_by_rounding_are_normalised(design):
    pi = torch.full((3000,), 1 / 3, dtype=torch.float32)
    pi[0] += 0.009
    made = by_probs(design, 1000, pi)
    if design is not PlackettLuce:  # whose mean is an integral over conditional Poisson designs
        assert made.mean.dtype == torch.float32
        assert abs(made.mean.double().sum() - 1000) < 1e-4
    assert (made.sample((20,)).sum(-1) == 1000).all()
    if design is not PlackettLuce:
        with pytest.raises(ValueError, match=r"must sum to k = 1000 to within 0.01, got the sum 1000.0390"):
            design(1000, probs=pi + 1e-5)


@pytest.mark.parametrize("design", ALL)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_nothing_and_everything(design, n):
    for k in (0, n):
        for made in (
            by_scores(design, k, torch.zeros(n)),
            by_probs(design, k, torch.full((n,), float(k > 0))),
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
    made = by_scores(design, 3, x)
    assert (made.sample((50,)) == torch.tensor([1.0, 0, 1, 1, 0, 0])).all()
    tied = by_scores(design, 2, x)
    draws = tied.sample((4000,), generator=torch.Generator().manual_seed(0)).mean(0)
    assert (draws - torch.tensor([1, 0, 0.5, 0.5, 0, 0])).abs().max() < 0.04
    if design in CLOSED:
        assert abs(tied.entropy() - math.log(2)) < 1e-6


@pytest.mark.parametrize("design", ALL)
def test_infinite_logits(design):
    x = torch.tensor([math.inf, 0.0, 1.0, -math.inf, 0.5])
    made = by_scores(design, 3, x)
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
        assert abs(design.log_normalizer - table[k]) < 1e-14 * 200 * abs(table[k])
        assert abs(design.mean.sum() - k) < 1e-10
        assert (design.sample((50,)).sum(-1) == k).all()


@pytest.mark.parametrize("design", ALL)
def test_conventions_of_torch(design):
    made = by_probs(design, 2, probabilities(5, 2))
    assert isinstance(made, KHotDistribution)
    assert isinstance(made, torch.distributions.Distribution)
    (given,) = made.arg_constraints
    assert given == ("logits" if design is PlackettLuce else "probs")
    assert isinstance(made.arg_constraints[given], capped_simplex) == (given == "probs")
    assert isinstance(made.support, k_hot)
    assert made.support.event_dim == 1
    assert design.has_enumerate_support
    assert design.exact_inclusion == (design not in APPROXIMATE)
    assert not made.has_rsample
    assert repr(made) == f"{design.__name__}(k: 2, {given}: torch.Size([5]))"
    x = made.enumerate_support()
    assert x.shape == (10, 5)
    assert made.support.check(x).all()
    assert x.unique(dim=0).shape == (10, 5)
    assert made.expand((3,)).enumerate_support().shape == (10, 3, 5)
    assert made.expand((3,)).enumerate_support(expand=False).shape == (10, 1, 5)
    with pytest.raises(ValueError, match=r"at most 1000000 vectors, got C\(40, 20\) = 137846528820"):
        by_scores(design, 20, torch.zeros(40)).enumerate_support()
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
    assert isinstance(Systematic(1.5, scores=torch.zeros(4)).support, rounded_k_hot)
    with pytest.raises(ValueError, match=r"Poisson: probs must lie in \[0, 1\]"):
        Poisson(probs=torch.tensor([1.5]))


@pytest.mark.parametrize("design", ALL)
def test_copies_of_a_design_that_was_used(design):
    """What is computed from parameters with a gradient carries a graph, and is not copied."""
    x = torch.randn(6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    made = by_scores(design, 3, x)
    mean = made.mean
    assert mean.requires_grad
    made.sample()
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(copied.mean, mean)
        assert copied.mean.requires_grad
        assert (copied.sample((5,)).sum(-1) == 3).all()
    parameter = "scores" if "scores" in design.parameters else "logits"
    assert getattr(copy.deepcopy(made), parameter) is not x
    assert getattr(copy.copy(made), parameter) is x


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: khot.sample(x, 2, generator=5),
        lambda x: khot.designs.ConditionalPoisson(2, logits=x).sample((2,), 5),
        lambda x: khot.designs.Systematic(2, scores=x).sample_indices((2,), 5),
        lambda x: khot.estimators.simple(x, 2, generator=5),
        lambda x: khot.estimators.gumbel_straight_through(x, 2, generator=5),
    ],
)
def test_what_is_not_a_generator_is_named(draw):
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator or None, got 5"):
        draw(torch.arange(5.0))


@pytest.mark.parametrize(("k", "error"), [("2", TypeError), (float("inf"), ValueError), (True, TypeError)])
def test_at_most_checks_k_all_the_same(k, error):
    with pytest.raises(error, match="sample: k must be"):
        khot.sample(torch.arange(5.0), k, at_most=True)


PI = torch.full((4,), 0.5)
STRATA = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize("wrong", [[], 0, 1, "", "no", torch.tensor(False)])
def test_validate_args_is_a_switch(wrong):
    """What counts as False would switch the checks off."""
    makers = {design.__name__: partial(by_scores, design, 2, torch.zeros(4)) for design in ALL}
    makers |= {
        "Poisson": partial(Poisson, PI),
        "SimpleRandom": partial(SimpleRandom, 2, 4),
        "Stratified": partial(Stratified, STRATA, "tille", [1, 1], probs=PI),
        "Cube": partial(Cube, 2, probs=PI, balance=torch.ones(4, 1)),
    }
    for name, make in makers.items():
        with pytest.raises(TypeError, match=f"^{name}: validate_args must be True, False or None, got"):
            make(validate_args=wrong)
        for right in (True, False, None):
            assert make(validate_args=right)._validate_args == (right is not False), name


@pytest.mark.parametrize("make", [lambda: Tille(2, probs=PI.expand(3, 4)), lambda: Poisson(PI.expand(3, 4))])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (4, TypeError, "be a tuple of integers, got 4"),
        (None, TypeError, "be a tuple of integers, got None"),
        ((2.0, 3), TypeError, "be a tuple of integers, got (2.0, 3)"),
        ((-1, 3), ValueError, "not be negative, got (-1, 3)"),
        ((2, 4), ValueError, "be one to which (3,) broadcasts, got (2, 4)"),
        ((), ValueError, "be one to which (3,) broadcasts, got ()"),
    ],
)
def test_batch_shapes_that_do_not_fit(make, wrong, error, message):
    made = make()
    with pytest.raises(error, match=re.escape(f"{type(made).__name__}.expand: batch_shape must {message}")):
        made.expand(wrong)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: Cube(2, probs=PI, balance=None),
            TypeError,
            "Cube: balance must be a torch.Tensor, got None",
        ),
        (
            lambda: Cube(2, probs=PI, balance=np.ones((4, 1))),
            TypeError,
            "Cube: balance must be a torch.Tensor, got ndarray",
        ),
        (
            lambda: Cube(2, probs=PI, balance=torch.ones(4, 1).long()),
            TypeError,
            "Cube: balance must have a floating-point dtype, got torch.int64",
        ),
        (
            lambda: Stratified(STRATA, "tille", [1, 1], probs=[0.5, 0.5, 0.5, 0.5]),
            TypeError,
            "Stratified: probs must be a torch.Tensor, got list",
        ),
        (
            lambda: Stratified(STRATA, Systematic, ["1", 1], probs=PI),
            TypeError,
            "Stratified: stratum 0: k must be a number, got str",
        ),
        (
            lambda: Stratified(STRATA, Systematic, [1, 3], probs=PI),
            ValueError,
            "Stratified: stratum 1: k must satisfy 0 <= k <= n = 2, got k = 3",
        ),
        (
            lambda: Stratified(STRATA, "tille", [1, 1]),
            ValueError,
            "Stratified: give one of probs, scores, got none",
        ),
        (
            lambda: Stratified(STRATA, "tille", [1, 1], scores=torch.full((4,), math.nan)),
            ValueError,
            "Stratified: stratum 0: scores must not be NaN",
        ),
        (
            lambda: Stratified(STRATA, "plackett_luce", [1, 1], scores=torch.zeros(4)),
            TypeError,
            "Stratified: design PlackettLuce takes logits, got scores",
        ),
        (
            lambda: Stratified(STRATA, [SimpleRandom(1, 2), Poisson(PI[:2])]),
            TypeError,
            "Stratified: designs must be a name, a class or a sequence of designs, got [SimpleRandom",
        ),
        (
            lambda: SimpleRandom(1, 3, 4),
            TypeError,
            "SimpleRandom: batch_shape must be a tuple of integers, got 4",
        ),
        (
            lambda: SimpleRandom(1, 3, "3"),
            TypeError,
            "SimpleRandom: batch_shape must be a tuple of integers, got '3'",
        ),
        (
            lambda: SimpleRandom(1, 3, (-1,)),
            ValueError,
            "SimpleRandom: batch_shape must not be negative, got (-1,)",
        ),
        (lambda: SimpleRandom(1, "3"), TypeError, "SimpleRandom: n must be an integer, got '3'"),
        *(
            (
                lambda k=k: inclusion_probabilities(torch.ones(3), k),
                TypeError,
                f"inclusion_probabilities: k must be a number, got {type(k).__name__}",
            )
            for k in ("2", None, True)
        ),
        (
            lambda: inclusion_probabilities(torch.ones(3), math.nan),
            ValueError,
            "inclusion_probabilities: k must satisfy 0 <= k <= n = 3, got k = nan",
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
