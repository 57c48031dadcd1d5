"""ExactK in pysindy: the terms of Lorenz's equations, its options, and what scikit-learn's tools ask."""

import pickle

import numpy as np
import pysindy
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from khot.apps.sindy import ExactK, MostFrequentTerms, SmoothedDerivative, TermPath
from strategies.trajectories import LORENZ_TERMS, lorenz


def model(optimizer, degree=2, **derivative):
    return pysindy.SINDy(
        optimizer=optimizer,
        feature_library=pysindy.PolynomialLibrary(degree),
        differentiation_method=SmoothedDerivative(**derivative),
    )


def terms(fitted):
    """The names of each equation's terms."""
    names = np.array(fitted.get_feature_names())
    return [set(names[row != 0]) for row in fitted.coefficients()]


def regression(seed=0, samples=120, count=8, noise=0.3):
    random = np.random.default_rng(seed)
    library = random.normal(size=(samples, count))
    weights = np.array([[3, 0, -2, 0, 0, 0, 0, 0], [0, 1.5, 0, 0, 2, 0, 0, 1]])[:, :count]
    return library, library @ weights.T + noise * random.normal(size=(samples, 2))


@pytest.mark.parametrize(
    "options",
    [
        {"k": (2, 3, 2)},
        {"k": 7, "per_target": False},
        {"k": (2, 3, 2), "search": "exchange"},
        {"k": (2, 3, 2), "search": "exchange", "restarts": 0, "soft_start": True},
        {"k": "path", "max_terms": 5},
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_lorenz_is_recovered(options, noise):
    t, x = lorenz(noise)
    fitted = model(ExactK(**options)).fit(x, t)
    assert terms(fitted) == LORENZ_TERMS
    assert fitted.optimizer.k_ == (2, 3, 2)
    assert fitted.complexity == 7
    row = fitted.get_feature_names().index("x0")
    assert fitted.coefficients()[0, row] == pytest.approx(-10, rel=0.05)


def test_k_terms_whatever_k_and_the_best_of_them():
    library, targets = regression()
    for k in range(9):
        fitted = ExactK(k).fit(library, targets)
        assert np.count_nonzero(fitted.coef_, axis=1).tolist() == [k, k]
        assert fitted.complexity == 2 * k
    whole = np.linalg.lstsq(library, targets, rcond=None)[0].T
    np.testing.assert_allclose(fitted.coef_, whole, rtol=1e-10)
    assert ExactK((0, 8)).fit(library, targets).k_ == (0, 8)


def test_the_total_is_shared_out_whatever_the_units():
    library, targets = regression()
    for scale in ([1, 1], [1e6, 1], [1, 1e6]):
        fitted = ExactK(5, per_target=False).fit(library, targets * scale)
        assert fitted.k_ == (2, 3)
        assert [path.k for path in fitted.path_] == [2, 3]
    assert ExactK(0, per_target=False).fit(library, targets).k_ == (0, 0)
    assert ExactK(16, per_target=False).fit(library, targets).k_ == (8, 8)


def test_unbias_and_alpha():
    library, targets = regression()
    plain, ridge = (ExactK(2, alpha=alpha, unbias=False).fit(library, targets) for alpha in (0.0, 50.0))
    chosen = library[:, ridge.ind_[0]]
    expected = np.linalg.solve(chosen.T @ chosen + 50 * np.eye(2), chosen.T @ targets[:, 0])
    np.testing.assert_allclose(ridge.coef_[0, ridge.ind_[0]], expected, rtol=1e-10)
    assert np.abs(ridge.coef_).sum() < np.abs(plain.coef_).sum()
    unbiased = ExactK(2, alpha=50.0).fit(library, targets)
    np.testing.assert_allclose(unbiased.coef_, plain.coef_, rtol=1e-10)


def test_a_ridge_is_in_the_units_of_the_library_unless_columns_are_normalised():
    library, targets = regression()
    library[:, 0] *= 1e-3  # its coefficient is 3000, which a ridge does not like
    assert ExactK(1, alpha=1.0).fit(library, targets[:, :1]).ind_.nonzero()[1] == [2]
    assert ExactK(1, alpha=1.0, normalize_columns=True).fit(library, targets[:, :1]).ind_.nonzero()[1] == [0]


def test_an_initial_guess_is_a_start():
    random = np.random.default_rng(2)
    library, target = random.normal(size=(40, 30)), random.normal(size=40)
    guess = random.normal(size=(1, 30))
    options = {"search": "exchange", "restarts": 0}
    best = ExactK(6, search="exchange", restarts=60).fit(library, target)
    alone = ExactK(6, **options).fit(library, target)
    assert (alone.coef_ != best.coef_).any()  # the greedy start is not enough here
    helped = ExactK(6, initial_guess=best.coef_ + 1e-3 * guess, **options).fit(library, target)
    np.testing.assert_allclose(helped.coef_, best.coef_)


def test_weights_of_samples_and_missing_ones():
    library, targets = regression()
    targets[:60] = -targets[:60, ::-1]  # the first half obeys other equations
    weights = np.r_[np.zeros(60), np.ones(60)]
    wanted = ExactK((2, 3)).fit(library[60:], targets[60:])
    np.testing.assert_allclose(ExactK((2, 3)).fit(library, targets, weights).coef_, wanted.coef_, rtol=1e-9)
    targets[:60] = np.nan
    np.testing.assert_allclose(ExactK((2, 3)).fit(library, targets).coef_, wanted.coef_, rtol=1e-9)


def test_one_target_as_a_vector():
    library, targets = regression()
    fitted = ExactK(2).fit(library, targets[:, 0])
    assert fitted.coef_.shape == (1, 8)
    assert fitted.score(library, targets[:, 0]) > 0.95
    assert fitted.predict(library).shape == (120, 1)


def test_parameters_are_those_of_scikit_learn():
    optimizer = ExactK(3, restarts=5, soft_start=True, tolerance=1e-5)
    assert clone(optimizer).get_params() == optimizer.get_params()
    assert optimizer.set_params(k=4) is optimizer
    assert optimizer.k == 4
    library, targets = regression()
    found = GridSearchCV(ExactK(), {"k": [1, 2, 3, 5]}, cv=4).fit(library, targets)
    assert found.best_params_ == {"k": 3}
    assert pickle.loads(pickle.dumps(found.best_estimator_)).k_ == (3, 3)


def test_a_search_over_models_of_pysindy():
    t, x = lorenz(0.0)
    whole = model(ExactK(1))
    whole.set_params(optimizer__k=(2, 3, 2))
    assert terms(whole.fit(x, t)) == LORENZ_TERMS


def test_the_path_and_its_criteria():
    library, targets = regression()
    fitted = ExactK("path").fit(library, targets)
    assert fitted.k_ == (2, 3)
    assert all(isinstance(path, TermPath) and len(path.supports) == 9 for path in fitted.path_)
    assert len(ExactK("path", max_terms=4).fit(library, targets).path_[0].supports) == 5
    bic, aic = (ExactK("path", criterion=name).fit(library, targets) for name in ("bic", "aic"))
    assert bic.k_ == (2, 3)
    assert all(a >= b for a, b in zip(aic.k_, bic.k_, strict=True))
    assert ExactK(2).fit(library, targets).path_ is None
    assert ExactK(2).fit(library[:3], targets[:3]).k_ == (2, 2)  # folds are not asked for


def test_tolerance_says_what_need_not_be_explained():
    random = np.random.default_rng(0)
    library = random.normal(size=(100, 6))
    target = library[:, 0] + 1e-3 * library[:, 1] + 1e-6 * library[:, 2]
    for tolerance, k in ((1e-8, 2), (1e-4, 1), (0.0, 3)):
        assert ExactK("path", tolerance=tolerance).fit(library, target).k_ == (k,)


def test_folds_are_stretches_of_samples(monkeypatch):
    library, targets = regression()
    deviations = [
        ExactK("path", folds=folds).fit(library, targets).path_[0].deviations[2] for folds in (2, 5, 10)
    ]
    assert len(set(deviations)) == 3


def test_random_state_gives_the_restarts():
    random = np.random.default_rng(3)
    library, target = random.normal(size=(40, 40)), random.normal(size=40)
    found = {
        ExactK(8, search="exchange", restarts=1, random_state=seed).fit(library, target).coef_.tobytes()
        for seed in (0, 1, 2, 3, 0)
    }
    assert 1 < len(found) <= 4
    assert ExactK(8, max_subsets=10, random_state=4).fit(library, target).complexity == 8


def test_the_library_is_copied_unless_told():
    library, targets = regression()
    before = library.copy()
    ExactK(2).fit(library, targets)
    ExactK(2, copy_X=False).fit(library, targets)
    assert (library == before).all()  # ExactK itself writes over nothing


def test_ensembles_keep_exactly_k():
    t, x = lorenz(0.03)
    np.random.seed(0)  # noqa: NPY002 (pysindy draws from it)
    options = {"bagging": True, "n_models": 8, "n_subset": 300}
    aggregated = pysindy.EnsembleOptimizer(
        ExactK((2, 3, 2)), ensemble_aggregator=MostFrequentTerms((2, 3, 2)), **options
    )
    assert terms(model(aggregated).fit(x, t)) == LORENZ_TERMS
    ensemble = pysindy.EnsembleOptimizer(ExactK(3), library_ensemble=True, n_models=8)
    ensemble.ensemble_aggregator = MostFrequentTerms(3)
    assert np.count_nonzero(model(ensemble).fit(x, t).coefficients(), axis=1).tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 9}, "k must be from 0 to 8, the terms there are, got 9"),
        ({"k": -1}, "k must be from 0 to 8"),
        ({"k": 17, "per_target": False}, "k must be from 0 to 16"),
        ({"k": 2.5}, "k must be an integer or a sequence of integers, got 2.5"),
        ({"k": True}, "k must be an integer or a sequence of one for each equation, got True"),
        ({"k": "all"}, "k must be an integer, a sequence of integers or 'path', got 'all'"),
        ({"k": (1, 2, 3)}, "one number for each of the 2 equations"),
        ({"k": (1, 2), "per_target": False}, "per_target=False takes one k for all equations together"),
        ({"k": "path", "per_target": False}, "k='path' chooses for each equation"),
        ({"k": "path", "max_terms": 9}, "max_terms must be from 1 to 8"),
        ({"k": "path", "max_terms": "x"}, "max_terms must be an integer, got 'x'"),
        ({"k": 2, "alpha": -1.0}, "alpha must be a number of at least 0, got -1.0"),
        ({"k": 2, "tolerance": float("nan")}, "tolerance must be a number of at least 0"),
        ({"k": 2, "criterion": "cp"}, "criterion must be 'validation', 'bic' or 'aic', got 'cp'"),
        ({"k": 2, "search": "greedy"}, "search must be 'auto', 'enumerate' or 'exchange', got 'greedy'"),
        ({"k": 2, "folds": 1}, "folds must be from 2 to the 120 samples, got 1"),
        ({"k": 2, "restarts": -1}, "restarts must be at least 0, got -1"),
        ({"k": 2, "random_state": None}, "random_state must be an integer, got None"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match="ExactK: ") as caught:
        ExactK(**options).fit(*regression())
    assert message in str(caught.value)


def test_without_pysindy_the_search_is_there_and_the_rest_says_what_to_install(run_python):
    code = (
        "import sys; sys.modules['pysindy'] = None; from khot.apps import sindy; sindy.MostFrequentTerms(2)\n"
        "for name in ('ExactK', 'SmoothedDerivative'):\n"
        "    try: getattr(sindy, name)\n"
        "    except ModuleNotFoundError as error: print(error)"
    )
    assert run_python(code).splitlines() == ["khot.apps.sindy needs pysindy: pip install 'khot[sindy]'"] * 2
