"""TopKSelector: what scikit-learn asks of an estimator, exactly k, and what each option does."""

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", minversion="1.6")

from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from khot.apps.features import TopKSelector

NEEDS_AN_ENVIRONMENT = {"check_array_api_input"}  # skipped by scikit-learn unless SCIPY_ARRAY_API=1


def products(rows=240, features=8, seed=0):
    """The label is the sign of the product of columns 2 and 5: neither of them says anything alone."""
    x = np.random.default_rng(seed).normal(size=(rows, features))
    return x, np.where(x[:, 2] * x[:, 5] > 0, "yes", "no")


def quick(k=2, **options):
    return TopKSelector(**{"n_features_to_select": k, "max_iter": 20, "random_state": 0, **options})


def test_scikit_learns_own_checks():
    results = check_estimator(TopKSelector(max_iter=2), on_fail="raise", on_skip=None)
    assert len(results) > 50
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= NEEDS_AN_ENVIRONMENT


@pytest.mark.full
def test_scikit_learns_own_checks_on_a_whole_fit():
    results = check_estimator(TopKSelector(max_iter=300), on_fail="raise", on_skip=None)
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= NEEDS_AN_ENVIRONMENT


def test_features_that_matter_only_together():
    x, y = products()
    selector = TopKSelector(2, max_iter=400, random_state=0).fit(x, y)
    assert selector.get_support(indices=True).tolist() == [2, 5]
    assert set(SelectKBest(k=2).fit(x, y).get_support(indices=True).tolist()) != {2, 5}
    linear = TopKSelector(2, hidden_units=0, max_iter=400, random_state=0).fit(x, y)
    assert linear.loss_curve_[-1] > 2 * selector.loss_curve_[-1]  # no linear model knows a product


def test_exactly_k_and_probabilities_that_sum_to_k():
    x, y = products()
    for k in (1, 3, 8):
        selector = quick(k).fit(x, y)
        assert selector.get_support().sum() == k == selector.n_features_to_select_
        assert selector.inclusion_probabilities_.sum() == pytest.approx(k)
        assert selector.transform(x).shape == (240, k)
        best = np.sort(np.argsort(-selector.scores_, kind="stable")[:k])
        assert selector.get_support(indices=True).tolist() == best.tolist()
    assert quick(None).fit(x, y).n_features_to_select_ == 4
    assert quick(0.4).fit(x, y).n_features_to_select_ == 3
    assert quick(0.01).fit(x, y).n_features_to_select_ == 1


@pytest.mark.full
@pytest.mark.parametrize("method", ["softsort", "iterative"])
def test_methods_without_a_gradient_at_equal_scores_learn_too(method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12))
    selector = TopKSelector(2, method=method, max_iter=150, random_state=0).fit(x, x[:, 7] + x[:, 9] > 0)
    assert np.flatnonzero(selector.get_support()).tolist() == [7, 9]


def test_regression_with_one_and_with_two_outputs():
    x, _ = products(seed=1)
    one = TopKSelector(2, max_iter=150, random_state=0).fit(x, x[:, 1] ** 2 + x[:, 6])
    assert one.get_support(indices=True).tolist() == [1, 6]
    assert not hasattr(one, "classes_")
    two = TopKSelector(2, max_iter=150, random_state=0).fit(x, x[:, [0, 4]] * [1.0, 100.0])
    assert two.get_support(indices=True).tolist() == [0, 4]  # outputs count alike, whatever their units
    counts = np.round(5 + 4 * x[:, 3]).astype(int)
    assert quick(task="regression").fit(x, counts).network_[-1].out_features == 1
    assert quick().fit(x, counts).network_[-1].out_features == len(np.unique(counts))


def test_weights_are_repeated_rows():
    x, y = products(rows=60)
    weights = np.random.default_rng(3).integers(0, 4, size=60)
    weighted = quick(max_iter=60).fit(x, y, sample_weight=weights)
    repeated = quick(max_iter=60).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-6, atol=1e-9)
    assert not np.allclose(weighted.scores_, quick(max_iter=60).fit(x, y).scores_)


def test_weights_are_repeated_rows_of_numbers_too():
    x, _ = products(rows=60)
    y = np.exp(x[:, 1])
    weights = np.random.default_rng(3).integers(0, 4, size=60)
    weighted = quick(max_iter=60).fit(x, y, sample_weight=1e308 * (weights / 4))  # their sum is infinite
    repeated = quick(max_iter=60).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-9)


def test_weights_count_in_batches_too():
    """Rows with another rule and a weight near zero do not change what is selected."""
    x, y = products(rows=600)
    x2, _ = products(rows=600, seed=5)
    both, labels = np.vstack([x, x2]), np.concatenate([y, np.where(x2[:, 0] > 0, "yes", "no")])
    weights = np.repeat([1.0, 1e-6], 600)
    chosen = TopKSelector(2, batch_size=128, max_iter=500, random_state=0).fit(both, labels, weights)
    assert chosen.get_support(indices=True).tolist() == [2, 5]


def test_in_a_pipeline_and_a_search_over_k():
    x, y = products(rows=120)
    search = GridSearchCV(
        make_pipeline(quick(max_iter=5), LogisticRegression()),
        {"topkselector__n_features_to_select": [1, 4]},
        cv=2,
    )
    assert search.fit(x, y).best_params_["topkselector__n_features_to_select"] in (1, 4)


def test_pandas_in_and_out():
    pd = pytest.importorskip("pandas")
    x, y = products()
    frame = pd.DataFrame(x, columns=[f"gene {i}" for i in range(8)])
    selector = quick().fit(frame, pd.Series(y)).set_output(transform="pandas")
    out = selector.transform(frame)
    assert list(out.columns) == list(selector.get_feature_names_out())
    assert set(out.columns) <= set(frame.columns)
    pd.testing.assert_frame_equal(out, frame[out.columns])


def test_clone_and_pickle():
    x, y = products()
    selector = quick().fit(x, y)
    again = pickle.loads(pickle.dumps(selector))
    assert np.array_equal(again.transform(x), selector.transform(x))
    fresh = clone(selector)
    assert not hasattr(fresh, "scores_")
    assert np.array_equal(fresh.fit(x, y).scores_, selector.scores_)


def test_readonly_and_float32_input():
    x, y = products()
    small = x.astype(np.float32)
    small.setflags(write=False)
    kept = small.copy()
    out = quick().fit(small, y).transform(small)
    assert out.dtype == np.float32
    assert np.array_equal(small, kept)


def test_constant_columns_are_selected_only_if_nothing_else_is_left():
    x, y = products()
    x[:, [0, 3]] = [7.0, 1e9]
    assert quick(6).fit(x, y).get_support(indices=True).tolist() == [1, 2, 4, 5, 6, 7]
    selector = quick(7)
    with pytest.warns(UserWarning, match=r"Features \[0 3\] are constant, and only 6 are not"):
        selector.fit(x, y)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert selector.inclusion_probabilities_.sum() == 7


def test_a_large_offset_is_not_a_constant():
    x, y = products(rows=60)
    wanted = quick().fit(x, y).scores_
    x[:, 4] += 1e10
    np.testing.assert_allclose(quick().fit(x, y).scores_, wanted, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-200, 1e150])
def test_units_of_a_column_do_not_matter(scale):
    x, y = products(rows=60)
    wanted = quick().fit(x, y).scores_
    x[:, 4] *= scale
    np.testing.assert_allclose(quick().fit(x, y).scores_, wanted, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_units": 8},
        {"method": "sparse"},
        {"temperature": 2.0},
        {"final_temperature": 0.1},
        {"max_iter": 21},
        {"batch_size": 32},
        {"learning_rate": 0.01},
        {"score_learning_rate": 0.1},
        {"alpha": 1.0},
        {"random_state": 1},
        {"task": "regression"},
        {"n_features_to_select": 3},
    ],
)
def test_every_option_changes_something(change):
    x, y = products()
    y = (y == "yes").astype(int)
    assert not np.array_equal(quick().fit(x, y).scores_, quick(**change).fit(x, y).scores_)


def test_verbose_prints_ten_times(capsys):
    x, y = products()
    quick(verbose=1).fit(x, y)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert printed[-1].startswith("[TopKSelector] step 20 of 20, loss 0.")


def test_warm_start_goes_on():
    x, y = products()
    selector = quick(max_iter=100, warm_start=True).fit(x, y)
    first = selector.loss_curve_
    selector.set_params(n_features_to_select=3).fit(x, y)
    assert selector.loss_curve_[0] < first[0]
    assert selector.get_support().sum() == 3
    with pytest.raises(
        ValueError, match="warm_start needs the features, classes and hidden_units of the last"
    ):
        selector.fit(x[:, :5], y)


@pytest.mark.parametrize(
    "around",
    [torch.no_grad(), torch.inference_mode(), torch.device("meta")],
    ids=["no_grad", "inference", "meta"],
)
def test_what_a_caller_has_switched_off_changes_nothing(around):
    x, y = products()
    wanted = quick(warm_start=True).fit(x, y)
    with around:
        found = quick(warm_start=True).fit(x, y)
        again = quick(warm_start=True).fit(x, y).fit(x, y)
    assert np.array_equal(found.scores_, wanted.scores_)
    assert np.array_equal(again.scores_, wanted.fit(x, y).scores_)
    torch.set_default_dtype(torch.float64)
    try:
        assert np.array_equal(quick().fit(x, y).scores_, found.scores_)
    finally:
        torch.set_default_dtype(torch.float32)


def test_nothing_global_is_changed():
    x, y = products()
    state = torch.get_rng_state()
    for before in (False, True):
        torch.set_flush_denormal(before)
        try:
            quick().fit(x, y)
            denormal = torch.full((), 1e-38) * 0.1
            assert (denormal.item() == 0.0) == before
        finally:
            torch.set_flush_denormal(False)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features_to_select": 0}, "The 'n_features_to_select' parameter of TopKSelector must be"),
        ({"n_features_to_select": 1.5}, "The 'n_features_to_select' parameter of TopKSelector must be"),
        ({"n_features_to_select": 9}, r"n_features_to_select=9 must be <= n_features=8\."),
        ({"task": "ranking"}, "The 'task' parameter of TopKSelector must be a str among"),
        ({"method": "nothing"}, "The 'method' parameter of TopKSelector must be a str among"),
        ({"method": "gumbel"}, "The 'method' parameter of TopKSelector must be a str among"),
        ({"temperature": 0.0}, "The 'temperature' parameter of TopKSelector must be a float in the range"),
        ({"max_iter": 0}, "The 'max_iter' parameter of TopKSelector must be an int in the range"),
    ],
)
def test_bad_options(options, message):
    x, y = products()
    with pytest.raises(ValueError, match=message):
        TopKSelector(**options).fit(x, y)


def test_bad_data():
    x, y = products()
    with pytest.raises(ValueError, match=r"Found array with 1 sample\(s\)"):
        quick().fit(x[:1], y[:1])
    with pytest.raises(ValueError, match=r"greater than one; got 1 class"):
        quick().fit(x, np.zeros(240))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        quick().fit(np.where(x > 2, np.nan, x), y)
    with pytest.raises(ValueError, match="Unknown label type: multilabel-indicator"):
        quick().fit(x, (x[:, :3] > 0).astype(int))
    with pytest.raises(TypeError, match="Sparse data was passed for X, but dense data is required"):
        quick().fit(csr_array(x), y)
    with pytest.raises(ValueError, match="X has 7 features, but TopKSelector is expecting 8"):
        quick().fit(x, y).transform(x[:, :7])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(240), "at least one non-zero"),
        (-np.ones(240), "Negative values in data passed to `sample_weight`"),
        (np.ones((240, 2)), "1D array or scalar, got 2D"),
        (np.ones(3), r"sample_weight.shape == \(3,\), expected \(240,\)!"),
        (np.full(240, np.nan), "contains NaN or infinity"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(*products(), sample_weight=weights)


def test_without_scikit_learn_the_gate_works_and_the_selector_says_what_to_install(run_python):
    run_python(
        "import sys; sys.modules['sklearn'] = None\n"
        "from khot.apps import features\n"
        "assert features.FeatureGate(3, 1).k == 1 and 'TopKSelector' in dir(features)\n"
        "try:\n    features.TopKSelector\n"
        "except ImportError as error:\n    assert 'pip install \"khot[apps]\"' in str(error), error\n"
        "else:\n    raise AssertionError\n"
    )
