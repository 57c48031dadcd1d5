"""khot.calibrate_temperature: the weights at the temperature it returns are as sharp as wanted."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import entr

import khot
from khot.relaxations import registry
from strategies import random_scores
from strategies.quick_run import in_turn

scores = partial(random_scores.scores, spread=3)

METHODS = [
    (name, options)
    for name, spec in registry.specs().items()
    for options in ({}, *spec.example_options)
    if not spec.stochastic
]
# Above 1 there is no entropy; where ties do not share, no temperature gives k/n and the most entropy.
BOUNDED = [
    (name, options)
    for name, options in METHODS
    if registry.get(name).bounded and registry.get(name).ties_share
]


def entropy(y: np.ndarray, k: np.ndarray | float, n: np.ndarray | int) -> float:
    """The mean over rows (…, n) of ΣH(y) / (n H(k/n))."""
    share = k / n
    most = n * (entr(share) + entr(1 - share))
    return float(((entr(y) + entr(1 - y)).sum(-1) / most).mean())


def weight_on_topk(y: np.ndarray, x: np.ndarray, k: np.ndarray | int) -> float:
    """The mean over rows of the share of the weight on the k largest."""
    rank = np.argsort(np.argsort(-x, -1), -1)
    top = rank < np.broadcast_to(k, x.shape[:-1])[..., None]
    return float(((y * top).sum(-1) / k).mean())


@pytest.mark.parametrize("target", [0.05, 0.5, 0.9])
@pytest.mark.parametrize(("method", "options"), BOUNDED)
def test_the_entropy_is_reached(method, options, target):
    x = scores(6, 9)
    temperature = khot.calibrate_temperature(x, 3, entropy=target, method=method, **options)
    y = khot.topk(x, 3, method, temperature=temperature, **options)
    assert entropy(y.numpy(), 3, 9) == pytest.approx(target, abs=1e-3)


@pytest.mark.parametrize(("named", "target"), in_turn(METHODS, [0.55, 0.99]))  # of a tournament at least 0.5
def test_the_weight_on_the_largest_is_reached(named, target):
    method, options = named
    x = scores(6, 9, seed=1)
    temperature = khot.calibrate_temperature(x, 3, weight_on_topk=target, method=method, **options)
    y = khot.topk(x, 3, method, temperature=temperature, **options)
    assert weight_on_topk(y.numpy(), x.numpy(), 3) == pytest.approx(target, abs=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_temperature_has_the_scale_of_the_scores(scale):
    x = scores(4, 7)
    temperature = khot.calibrate_temperature(x, 2, entropy=0.5)
    assert khot.calibrate_temperature(scale * x, 2, entropy=0.5) == pytest.approx(
        scale * temperature, rel=1e-6
    )


@pytest.mark.parametrize("measure", ["entropy", "weight_on_topk"])
def test_a_budget_for_each_row(measure):
    x, k = scores(4, 9, seed=2), torch.tensor([1, 2, 4, 7])
    temperature = khot.calibrate_temperature(x, k, **{measure: 0.8})
    y = khot.topk(x, k, temperature=temperature).numpy()
    reached = entropy(y, k.numpy(), 9) if measure == "entropy" else weight_on_topk(y, x.numpy(), k.numpy())
    assert reached == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("measure", ["entropy", "weight_on_topk"])
def test_a_budget_that_broadcasts_over_leading_rows(measure):
    """One for each column of an (A, n, B) tensor: the same as if it were written out."""
    x, k = scores(2, 6, 3, seed=3), torch.tensor([1.0, 2.0, 4.0])
    ours = khot.calibrate_temperature(x, k, **{measure: 0.75}, dim=1)
    written_out = khot.calibrate_temperature(x.movedim(1, -1), k.expand(2, 3), **{measure: 0.75})
    assert ours == pytest.approx(written_out, rel=1e-6)


@pytest.mark.parametrize("measure", ["entropy", "weight_on_topk"])
def test_what_the_mask_hides_does_not_matter(measure):
    x = scores(5, 8, seed=4)
    mask = torch.arange(8) < 6
    expected = khot.calibrate_temperature(x[:, :6], 2, **{measure: 0.6})
    for hidden in (0.0, -1e9, 1e30, torch.inf):
        filled = torch.where(mask, x, hidden)
        assert khot.calibrate_temperature(filled, 2, **{measure: 0.6}, mask=mask) == pytest.approx(
            expected, rel=1e-6
        )


def test_a_huge_temperature_has_all_the_entropy():
    """1 is the limit; a hair below it is reached, at a temperature far above the spread of the scores."""
    x = scores(3, 10, seed=5)
    temperature = khot.calibrate_temperature(x, 4, entropy=1 - 1e-9)
    assert temperature > 1e3 * float(x.std())
    y = khot.topk(x, 4, temperature=1e9 * float(x.std()))
    assert entropy(y.numpy(), 4, 10) == pytest.approx(1, abs=1e-12)


def test_weight_below_that_of_equal_weights_cannot_be_reached():
    message = (
        r"^calibrate_temperature: weight_on_topk = 0\.2 cannot be reached; "
        r"method 'sigmoid' gives these scores 0\.3(333)? to 1$"
    )
    with pytest.raises(ValueError, match=message):
        khot.calibrate_temperature(scores(4, 9), 3, weight_on_topk=0.2)


def test_half_a_selection_has_entropy_at_any_temperature():
    """Of k = 2.5 one weight remains ½: log 2 of the most there can be."""
    share = 2.5 / 9
    least = np.log(2) / (9 * (entr(share) + entr(1 - share)))
    with pytest.raises(ValueError, match=rf"entropy = 0\.05 cannot be reached; .* {least:.4g} to 1$"):
        khot.calibrate_temperature(scores(6, 9), 2.5, entropy=0.05)
    temperature = khot.calibrate_temperature(scores(6, 9), 2.5, entropy=0.2)
    y = khot.topk(scores(6, 9), 2.5, temperature=temperature)
    assert entropy(y.numpy(), 2.5, 9) == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("target", ["entropy", "weight_on_topk"])
@pytest.mark.parametrize(
    "level",
    [
        torch.zeros(2, 5),
        torch.tensor([[1.0], [7.0]]).expand(2, 5),
        torch.tensor([[0.1] * 3 + [-torch.inf] * 2]),
    ],
)
def test_equal_scores_are_an_error_that_names_the_cure(level, target):
    with pytest.raises(ValueError, match=r"calibrate_temperature: scores must differ within a row.*; pass"):
        khot.calibrate_temperature(level, 2, **{target: 0.7})


@pytest.mark.parametrize("target", ["entropy", "weight_on_topk"])
def test_what_differs_between_rows_does_not_matter(target):
    """Rows far apart: the spread that counts is the one within them."""
    x, offset = scores(4, 7), torch.tensor([[0.0], [1e10], [-1e11], [5.0]], dtype=torch.float64)
    expected = khot.calibrate_temperature(x, 2, **{target: 0.9})
    assert khot.calibrate_temperature(x + offset, 2, **{target: 0.9}) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("target", ["entropy", "weight_on_topk"])
def test_the_smallest_are_the_largest_of_the_negative(target):
    x = scores(4, 9, seed=6)
    x[0, 0] = torch.inf  # excluded
    ours = khot.calibrate_temperature(x, 2, largest=False, **{target: 0.6})
    assert ours == khot.calibrate_temperature(-x, 2, **{target: 0.6})
    assert ours != khot.calibrate_temperature(x, 2, **{target: 0.6})


def test_minus_infinity_is_masked():
    x, mask = scores(5, 8, seed=4), torch.arange(8) < 6
    expected = khot.calibrate_temperature(x[:, :6], 2, entropy=0.6)
    excluded = torch.where(mask, x, -torch.inf)
    assert khot.calibrate_temperature(excluded, 2, entropy=0.6) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["entropy", "weight_on_topk"])
@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, float("nan")])
def test_a_target_out_of_range_is_an_error(name, value):
    with pytest.raises(
        ValueError, match=rf"calibrate_temperature: {name} must be between 0 and 1, got {value}"
    ):
        khot.calibrate_temperature(scores(2, 5), 2, **{name: value})


def test_exactly_one_target_a_number():
    for targets, got in (({}, "neither"), ({"entropy": 0.5, "weight_on_topk": 0.5}, "both")):
        with pytest.raises(TypeError, match=f"exactly one of entropy= and weight_on_topk= .* got {got}"):
            khot.calibrate_temperature(scores(2, 5), 2, **targets)
    with pytest.raises(TypeError, match="calibrate_temperature: entropy must be a number, got 'low'"):
        khot.calibrate_temperature(scores(2, 5), 2, entropy="low")


@pytest.mark.parametrize("k", [6, -1])
def test_a_budget_outside_of_the_row_is_an_error(k):
    with pytest.raises(ValueError, match=r"calibrate_temperature: k must satisfy 0 <= k <= n = 5"):
        khot.calibrate_temperature(scores(2, 5), k, entropy=0.5)


def test_an_unknown_method_or_option_is_an_error():
    with pytest.raises(ValueError, match="calibrate_temperature: unknown method 'nope'"):
        khot.calibrate_temperature(scores(2, 5), 2, entropy=0.5, method="nope")
    with pytest.raises(TypeError, match="calibrate_temperature: method 'sigmoid' has no option 'norm'"):
        khot.calibrate_temperature(scores(2, 5), 2, entropy=0.5, norm=3)


RANDOM = [name for name, spec in registry.specs().items() if spec.stochastic]


@pytest.mark.parametrize("method", RANDOM)
def test_a_random_method_needs_a_generator(method):
    for given in (method, registry.get(method)):
        with pytest.raises(ValueError, match=rf"method {method!r} is random: it needs generator=torch"):
            khot.calibrate_temperature(scores(2, 5), 2, entropy=0.5, method=given)


@pytest.mark.parametrize("method", RANDOM)
def test_a_random_method_is_as_sharp_as_wanted_with_the_same_noise(method):
    """At most 0.77 here: gumbel gives a sample, and at temperature 0 the noise in it is still there."""
    x, generator = scores(30, 9), torch.Generator().manual_seed(3)
    before = generator.get_state()
    temperature = khot.calibrate_temperature(x, 3, weight_on_topk=0.6, method=method, generator=generator)
    assert torch.equal(generator.get_state(), before)
    y = khot.topk(x, 3, method, temperature=temperature, generator=generator)
    assert weight_on_topk(y.numpy(), x.numpy(), 3) == pytest.approx(0.6, abs=1e-2)  # perturbed has steps
