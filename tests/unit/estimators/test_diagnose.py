"""The diagnosis against bias, variance and cosine by enumeration."""

import math

import pytest
import torch

from khot import estimators
from khot.estimators import diagnose, estimate_gradient, get
from strategies.subset_oracles import exact_gradient, nonlinear, probabilities, scores_of, seeded, subsets

N, K = 7, 3
THETA = scores_of(N, seed=3)
F = nonlinear(N)


def test_bias_variance_and_cosine_of_simple():
    sets = subsets(N, K)
    p = probabilities("conditional_poisson", THETA, K)
    pi = p @ sets
    covariance = (sets.T * p) @ sets - torch.outer(pi, pi)
    x = sets.clone().requires_grad_()
    each = torch.autograd.grad(F(x).sum(), x)[0] @ covariance
    mean = p @ each
    exact = exact_gradient("conditional_poisson", F, THETA, K)
    bias = (mean - exact).norm() / exact.norm()
    variance = p @ (each - mean).square().sum(-1) / exact.norm() ** 2

    found = diagnose(F, THETA, K, estimators=["simple"], samples=2, repeats=50_000, generator=seeded()).rows[
        0
    ]
    assert (found.estimator, found.design, found.reference) == (
        "simple",
        "conditional_poisson",
        "enumeration",
    )
    assert found.reference_noise == 0
    assert abs(found.bias - bias) < 4 * found.noise
    assert found.variance == pytest.approx(float(variance) / 2, rel=0.03)
    assert found.noise == pytest.approx(math.sqrt(found.variance / 50_000))
    assert found.cosine == pytest.approx(float(torch.cosine_similarity(mean, exact, 0)), abs=4 * found.noise)
    assert 0 < found.cosine_each < found.cosine


@pytest.mark.parametrize("law", ["conditional_poisson", "tree_pivotal", "systematic", "plackett_luce"])
def test_the_score_function_shows_no_bias_and_more_variance_than_straight_through(law):
    score = get("score_function", design=law)
    found = diagnose(F, THETA, K, estimators=[score], repeats=20_000, generator=seeded()).rows[0]
    assert found.reference == "enumeration"
    assert found.bias < 2 * found.noise
    assert found.noise < 0.05


@pytest.mark.parametrize("law", ["random_tree_pivotal", "random_systematic"])
@pytest.mark.full
def test_a_long_run_stands_in_where_sets_cannot_be_enumerated(law):
    theta = THETA[:5]
    f = nonlinear(5)
    through = get("sampled_straight_through", design=law)
    found = diagnose(f, theta, 2, estimators={"mine": through}, repeats=4000, generator=seeded()).rows[0]
    exact = exact_gradient(law, f, theta, 2)
    leaf = theta.expand(4000, -1)
    assert (found.estimator, found.reference) == ("mine", "long run")
    assert 0 < found.reference_noise < 0.2
    mean = estimate_gradient(f, leaf, 2, through, generator=seeded(1)).mean(0)
    bias = (mean - exact).norm() / exact.norm()
    assert abs(found.bias - bias) < 4 * found.noise


def test_large_n_takes_a_long_run_that_agrees_with_enumeration():
    f = nonlinear(30)
    theta = scores_of(30)
    found = diagnose(
        f, theta, 10, estimators=["score_function"], repeats=500, reference_samples=20_000, generator=seeded()
    ).rows[0]
    assert found.reference == "long run"
    assert found.bias < 2 * found.noise
    assert found.noise < 0.5


def test_all_by_default_as_table_text_and_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = diagnose(F, THETA, K, repeats=50, generator=seeded())
    names = [row["estimator"] for row in found.table()]
    assert [name.partition("(")[0] for name in names] == estimators.names()
    assert len(names) == 8
    lines = str(found).splitlines()
    assert len(lines) == 9
    assert lines[0].split()[:3] == ["estimator", "design", "bias"]
    axes = found.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    assert found.plot(axes) is axes
    plt.close(axes.figure)


def test_a_constant_loss_has_no_gradient_and_no_division_by_zero():
    found = diagnose(
        lambda x: 0 * x.sum(-1) + 1, THETA, K, estimators=["simple", "score_function"], repeats=10
    )
    for row in found.rows:
        assert row.bias == pytest.approx(0, abs=1e-9)
        assert math.isfinite(row.cosine)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: diagnose(F, THETA.expand(2, -1), K), r"scores must be a vector, got shape \(2, 7\)"),
        (lambda: diagnose(F, THETA, K, repeats=1), "repeats must be at least 2, got 1"),
        (
            lambda: diagnose(F, THETA, K, reference_samples=10),
            "reference_samples must be at least 2000, got 10",
        ),
        (lambda: diagnose(F, THETA, K, estimators=["x"]), "unknown estimator 'x'"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def without_gradient(x):
    return x.detach().sum(-1)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"f": None}, TypeError, "f must be a function, got None"),
        ({"f": lambda x: None}, TypeError, "f must return a real tensor, .* got NoneType"),
        ({"f": lambda x: 1.0}, TypeError, "f must return a real tensor, .* got float"),
        ({"f": lambda x: x.sum(-1) + 0j}, TypeError, r"f must return a real tensor, .* got torch\.complex"),
        (
            {"f": lambda x: x.sum()},
            ValueError,
            r"f must give one loss for each sample, shape \(35,\), got \(\)",
        ),
        (
            {"f": without_gradient},
            ValueError,
            "f must be differentiable for the estimator 'simple', got losses",
        ),
        ({"scores": [1.0, 2.0]}, TypeError, r"scores must be a torch\.Tensor, got list"),
        ({"scores": None}, TypeError, r"scores must be a torch\.Tensor, got NoneType"),
        ({"k": "2"}, TypeError, "k must be a number or a tensor, got '2'"),
        ({"k": math.nan}, ValueError, "k must satisfy 0 <= k <= n = 7 .* got k = nan"),
        ({"k": 1.5}, ValueError, r"k must be an integer here, got k = 1\.5"),
        ({"k": torch.tensor(2)}, TypeError, "k must be a number, got a tensor"),
        *(
            ({argument: wrong}, TypeError, f"{argument} must be an integer, got {wrong!r}")
            for argument in ("samples", "repeats", "reference_samples")
            for wrong in ("2", None, math.nan, True)
        ),
        ({"estimators": ["score_function"], "samples": 1}, ValueError, "samples must be at least 2, got 1"),
        ({"estimators": []}, ValueError, r"estimators must be at least one, or None for all, got \[\]"),
        ({"estimators": {}}, ValueError, r"estimators must be at least one, or None for all, got \{\}"),
        (
            {"estimators": "simple"},
            TypeError,
            "estimators must be several names or estimators, .* got 'simple'",
        ),
        ({"estimators": 3}, TypeError, "estimators must be several names or estimators, .* got 3"),
        ({"generator": 5}, TypeError, r"generator must be a torch\.Generator or None, got 5"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    given = {"f": F, "scores": THETA, "k": K, "estimators": ["simple"], "repeats": 2, **change}
    with pytest.raises(error, match=f"^diagnose: {message}"):
        diagnose(given.pop("f"), given.pop("scores"), given.pop("k"), **given)


def test_a_whole_number_of_any_type_is_a_budget():
    assert diagnose(F, THETA, float(K), estimators=["simple"], repeats=2).rows


def test_a_loss_without_gradient_for_an_estimator_that_needs_none():
    assert diagnose(lambda x: F(x).detach(), THETA, K, estimators=["score_function"], repeats=2).rows
