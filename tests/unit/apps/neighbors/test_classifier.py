"""SoftKNeighborsClassifier: scikit-learn's checks, its own kNN as the limit, and a map that helps."""

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from khot.apps.neighbors import SoftKNeighborsClassifier


def noisy(rows=300, noise=40, seed=0):
    """Two columns say the class, the others are noise: a plain kNN listens to all of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=rows)
    angle = 2 * np.pi * y / 3
    x = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.35 * rng.normal(size=(rows, 2))
    return np.hstack([x, rng.normal(size=(rows, noise))]), np.array(["a", "b", "c"])[y]


def test_scikit_learns_own_checks():
    quick = SoftKNeighborsClassifier(max_iter=3, temperature=1.0)
    results = check_estimator(quick, on_fail="raise", on_skip=None)
    assert len(results) > 50
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.full
def test_scikit_learns_own_checks_as_it_is():
    results = check_estimator(SoftKNeighborsClassifier(), on_fail="raise", on_skip=None)
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize("options", [{"weights": "uniform"}, {"temperature": 1e-9}])
def test_without_learning_it_is_scikit_learns(options):
    x, y = noisy()
    scaler = StandardScaler().fit(x[:200])
    plain = KNeighborsClassifier(7).fit(scaler.transform(x[:200]), y[:200])
    model = SoftKNeighborsClassifier(7, max_iter=0, **options).fit(x[:200], y[:200])
    rest = scaler.transform(x[200:])
    np.testing.assert_allclose(model.predict_proba(x[200:]), plain.predict_proba(rest), atol=1e-9)
    distances, indices = model.kneighbors(x[200:], 4)
    wanted = plain.kneighbors(rest, 4)
    np.testing.assert_allclose(distances, wanted[0])
    assert np.array_equal(indices, wanted[1])
    assert np.array_equal(model.kneighbors(x[200:], 4, return_distance=False), indices)


@pytest.mark.full
def test_a_learned_map_hears_less_noise():
    x, y = noisy()
    before = SoftKNeighborsClassifier(7, max_iter=0).fit(x[:200], y[:200]).score(x[200:], y[200:])
    for components in (None, 4):
        model = SoftKNeighborsClassifier(7, n_components=components, max_iter=120, random_state=0)
        model.fit(x[:200], y[:200])
        assert model.score(x[200:], y[200:]) > before + 0.03
        assert model.loss_curve_[-1] < model.loss_curve_[0] / 2
    assert model.components_.shape == (4, 42)
    assert model.embed(x).shape == (300, 4)
    assert model.predict_proba(x).sum(1) == pytest.approx(np.ones(300))


@pytest.mark.parametrize(
    "change",
    [
        {"n_neighbors": 4},
        {"n_components": 3},
        {"temperature": 0.5},
        {"method": "sparse"},
        {"max_iter": 4},
        {"batch_size": 64},
        {"learning_rate": 0.1},
        {"weights": "uniform"},
    ],
)
def test_every_option_changes_something(change):
    x, y = noisy()
    first, second = (
        SoftKNeighborsClassifier(**{"max_iter": 3, "random_state": 0, **options}).fit(x, y).predict_proba(x)
        for options in ({}, change)
    )
    assert not np.allclose(first, second)


def test_batches_are_drawn_from_random_state_alone():
    x, y = noisy()
    state = torch.get_rng_state()
    maps = [
        SoftKNeighborsClassifier(max_iter=3, batch_size=50, random_state=seed).fit(x, y).components_
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(maps[0], maps[1])
    assert not np.array_equal(maps[0], maps[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_warm_start_clone_pickle_float32_and_verbose(capsys):
    x, y = noisy()
    model = SoftKNeighborsClassifier(max_iter=20, warm_start=True, temperature=1.0, verbose=1).fit(x, y)
    assert capsys.readouterr().out.count("[SoftKNeighborsClassifier] step") == 10
    last = model.loss_curve_[-1]
    model.set_params(verbose=0).fit(x, y)
    assert model.loss_curve_[0] <= last
    with pytest.raises(ValueError, match="warm_start needs the features and n_components of the last fit"):
        model.fit(x[:, :5], y)
    model = clone(model).fit(x.astype(np.float32), y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(x.astype(np.float32)), model.predict(x.astype(np.float32)))
    assert model.predict_proba(x.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "The 'n_neighbors' parameter of SoftKNeighborsClassifier must be an int"),
        ({"method": "gumbel"}, "The 'method' parameter of SoftKNeighborsClassifier must be a str among"),
        ({"temperature": "hot"}, "The 'temperature' parameter of SoftKNeighborsClassifier must be"),
        ({"n_components": 43}, r"n_components=43 must be <= n_features=42\."),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SoftKNeighborsClassifier(**options).fit(*noisy())


def test_more_neighbours_than_rows():
    x, y = noisy(rows=4)
    model = SoftKNeighborsClassifier(5, max_iter=1).fit(x, y)
    with pytest.raises(ValueError, match="Expected n_neighbors <= n_samples_fit, but n_neighbors = 5"):
        model.predict(x)
    with pytest.raises(ValueError, match=r"Expected n_neighbors > 0. Got 0"):
        model.kneighbors(x, 0)


@pytest.mark.parametrize(
    "around",
    [torch.no_grad(), torch.inference_mode(), torch.device("meta")],
    ids=["no_grad", "inference", "meta"],
)
def test_what_a_caller_has_switched_off_changes_nothing(around):
    x, y = noisy(rows=60)
    wanted = SoftKNeighborsClassifier(3, max_iter=5, random_state=0).fit(x, y)
    with around:
        found = SoftKNeighborsClassifier(3, max_iter=5, random_state=0).fit(x, y)
        shares = found.predict_proba(x)
    assert np.array_equal(found.components_, wanted.components_)
    np.testing.assert_allclose(shares, wanted.predict_proba(x), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_units_of_the_columns_do_not_matter_however_large(dtype):
    """Squares of the largest values overflow; a row beyond all others still has finite votes."""
    x, y = noisy(rows=60, noise=2)
    x = np.clip(x, -3, 3).astype(dtype)
    unit = dtype(2.0 ** (np.log2(np.finfo(dtype).max) // 1 - 3))
    plain, large = (
        SoftKNeighborsClassifier(3, max_iter=5, random_state=0, temperature=1.0).fit(x * scale, y)
        for scale in (dtype(1), unit)
    )
    np.testing.assert_allclose(large.predict_proba(x * unit), plain.predict_proba(x), rtol=1e-3)
    far = SoftKNeighborsClassifier(3, max_iter=5, random_state=0).fit(x / unit, y)
    np.testing.assert_allclose(far.predict_proba(x * unit).sum(1), 1, rtol=1e-5)
    distances, _ = far.kneighbors(x * unit)
    assert np.isfinite(distances).all()
