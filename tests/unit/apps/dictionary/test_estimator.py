"""TopKDictionary: scikit-learn's own checks, atoms that are found again, every option, and its errors."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from khot.apps.dictionary import TopKDictionary
from khot.apps.dictionary._online import OnlineDictionary, first_atoms


def sparse_data(samples=1500, atoms=24, features=16, k=3, seed=0, noise=0.01):
    """Samples of exactly k atoms, and the atoms."""
    random = np.random.default_rng(seed)
    true = random.normal(size=(atoms, features))
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    codes = np.zeros((samples, atoms))
    for row in codes:
        row[random.permutation(atoms)[:k]] = random.choice([-1, 1], size=k) * random.uniform(1, 2, size=k)
    return codes @ true + noise * random.normal(size=(samples, features)), true


@pytest.fixture(scope="module")
def data():
    return sparse_data()


def error(dictionary, samples):
    rest = samples - dictionary.inverse_transform(dictionary.transform(samples))
    return np.square(rest).sum() / np.square(samples).sum()


def fitted(samples, **options):
    options = {"transform_n_nonzero_coefs": 3, "random_state": 0, "max_iter": 6, "batch_size": 100, **options}
    return TopKDictionary(24, **options).fit(samples)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks():
    results = check_estimator(TopKDictionary(), on_fail=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # needs an environment variable


@pytest.mark.full
def test_true_atoms_are_found_again():
    found = []
    for seed in range(3):  # each run ends in a local optimum of its own
        samples, true = sparse_data(seed=seed)
        dictionary = fitted(samples, max_iter=60, random_state=seed)
        np.testing.assert_allclose(np.linalg.norm(dictionary.components_, axis=1), 1, rtol=1e-12)
        found.append((np.abs(true @ dictionary.components_.T).max(axis=1) > 0.99).mean())
    assert np.mean(found) > 0.8


@pytest.mark.full
def test_exactly_k_in_training_beats_the_penalty_at_equal_k(data):
    samples, _ = data
    samples, held_out = samples[:1000], samples[1000:]
    ours = fitted(samples, max_iter=15)
    theirs = MiniBatchDictionaryLearning(
        24, alpha=0.1, transform_n_nonzero_coefs=3, random_state=0, max_iter=5, batch_size=100
    ).fit(samples)
    rest = held_out - theirs.transform(held_out) @ theirs.components_
    assert error(ours, held_out) < np.square(rest).sum() / np.square(held_out).sum()
    codes = ours.transform(held_out)
    assert (np.count_nonzero(codes, axis=1) == 3).all()


def test_options_of_the_training_change_it(data):
    samples = data[0]
    base = fitted(samples)
    for options in (
        {"max_iter": 3},
        {"batch_size": 60},
        {"shuffle": False},
        {"grow": False},
        {"transform_algorithm": "omp"},
        {"random_state": 1},
        {"transform_n_nonzero_coefs": 2},
        {"dict_init": np.eye(24, 16) + 0.1},
    ):
        assert (fitted(samples, **options).components_ != base.components_).any(), options
    assert (fitted(samples).components_ == base.components_).all()


def test_passes_end_when_they_no_longer_help(data):
    samples = data[0]
    assert fitted(samples, max_iter=12, tol=0.0).n_iter_ == 12
    early = fitted(samples, max_iter=12, tol=0.9, max_no_improvement=1, grow=False)
    later = fitted(samples, max_iter=12, tol=0.9, max_no_improvement=3, grow=False)
    assert early.n_iter_ < later.n_iter_ < 12
    assert later.n_steps_ == 15 * later.n_iter_


def test_unused_atoms_are_replaced():
    samples = sparse_data(400)[0]
    samples[:, 0] = 0
    first = np.concatenate([samples[:12], np.tile(np.eye(16)[0], (12, 1))])  # half of them are like no sample
    kept = fitted(samples, dict_init=first, replace_unused=0.0, max_iter=20)
    replaced = fitted(samples, dict_init=first, max_iter=20)
    assert ((kept.transform(samples) != 0).any(axis=0)).sum() == 12
    assert ((replaced.transform(samples) != 0).any(axis=0)).all()
    assert error(replaced, samples) < 0.7 * error(kept, samples)


def test_a_step_is_the_minimiser_of_each_atom():
    samples, true = sparse_data(300)
    online = OnlineDictionary.from_atoms(true)
    online.learn(samples, 3)
    products, sums = online.products, online.sums

    def loss(atoms):
        return np.sum(atoms * (products @ atoms)) - 2 * np.sum(atoms * sums)

    reached = loss(online.atoms)
    assert reached < loss(true)
    random = np.random.default_rng(0)
    last = online.atoms.copy()
    for _ in range(50):  # the last atom that was moved is the best of its length, the others fixed
        last[-1] = online.atoms[-1] + 0.1 * random.normal(size=16)
        last[-1] /= np.linalg.norm(last[-1])
        assert loss(last) >= reached - 1e-9


def test_partial_fit_goes_on_and_agrees_with_fit(data):
    samples = data[0]
    dictionary = TopKDictionary(24, transform_n_nonzero_coefs=3, random_state=0, batch_size=100)
    errors = [dictionary.partial_fit(samples).error_ for _ in range(6)]
    assert errors[-1] < 0.7 * errors[0]
    assert (dictionary.n_iter_, dictionary.n_steps_) == (6, 90)
    once = fitted(samples, max_iter=1, shuffle=False, grow=False)
    again = TopKDictionary(24, transform_n_nonzero_coefs=3, random_state=0, batch_size=100)
    for batch in np.array_split(samples, 15):
        again.partial_fit(batch)
    assert again.n_steps_ == once.n_steps_ == 15
    start = first_atoms(samples, 24, np.random.RandomState(0))
    same = TopKDictionary(24, transform_n_nonzero_coefs=3, batch_size=100, dict_init=start).partial_fit(
        samples
    )
    np.testing.assert_allclose(same.components_, once.components_)
    with pytest.raises(ValueError, match="16 features"):
        dictionary.partial_fit(samples[:, :10])


def test_codes_and_back(data):
    samples = data[0][:200]
    dictionary = fitted(samples)
    codes = dictionary.transform(samples)
    np.testing.assert_allclose(dictionary.inverse_transform(codes), codes @ dictionary.components_)
    dictionary.set_params(split_sign=True)
    parts = dictionary.transform(samples)
    assert parts.shape == (200, 48)
    assert (parts >= 0).all()
    np.testing.assert_allclose(dictionary.inverse_transform(parts), codes @ dictionary.components_)
    assert len(dictionary.get_feature_names_out()) == 48
    dictionary.set_params(split_sign=False, transform_tol=1.0, transform_n_nonzero_coefs=8)
    counts = np.count_nonzero(dictionary.transform(samples), axis=1)
    assert len(set(counts)) > 1
    with pytest.raises(ValueError, match=r"codes must have 24 columns, got the shape \(200, 48\)"):
        dictionary.inverse_transform(parts)


def test_defaults_follow_the_features():
    samples = np.random.default_rng(0).normal(size=(100, 30))
    dictionary = TopKDictionary(random_state=0, max_iter=2).fit(samples)
    assert dictionary.components_.shape == (30, 30)
    assert (np.count_nonzero(dictionary.transform(samples), axis=1) == 3).all()
    more = TopKDictionary(150, random_state=0, max_iter=1).fit(samples)  # more atoms than samples
    assert np.isfinite(more.components_).all()


def test_k_at_its_ends(data):
    samples = data[0][:100]
    assert error(fitted(samples, transform_n_nonzero_coefs=16), samples) < 1e-10
    assert (
        np.count_nonzero(fitted(samples, transform_n_nonzero_coefs=1).transform(samples), axis=1) == 1
    ).all()


def test_constant_data_has_no_nan():
    for value in (0.0, 1.0, 1e-30, 1e30):
        dictionary = TopKDictionary(4, random_state=0, max_iter=3).fit(np.full((20, 5), value))
        assert np.isfinite(dictionary.components_).all()
        assert np.isfinite(dictionary.transform(np.full((3, 5), value))).all()


def test_float32_stays_and_is_nearly_as_good(data):
    single = fitted(data[0].astype(np.float32))
    assert single.components_.dtype == single.transform(data[0].astype(np.float32)).dtype == np.float32
    assert error(single, data[0]) < 1.3 * error(fitted(data[0]), data[0])


def test_saved_cloned_and_in_a_pipeline(data):
    samples = data[0][:300]
    dictionary = fitted(samples)
    again = pickle.loads(pickle.dumps(dictionary))
    assert (again.transform(samples) == dictionary.transform(samples)).all()
    assert clone(dictionary).get_params() == dictionary.get_params()
    codes = make_pipeline(StandardScaler(), TopKDictionary(24, random_state=0, max_iter=2)).fit_transform(
        samples
    )
    assert codes.shape == (300, 24)


def test_callback_and_verbose(data, capsys):
    seen = []
    fitted(
        data[0][:200],
        callback=lambda d: seen.append((d.n_iter_, d.error_, d.components_.shape)),
        verbose=True,
    )
    assert [n for n, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[0][2] == (24, 16)
    assert capsys.readouterr().out.count("TopKDictionary: pass ") == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be None or an integer of at least 1, got 0"),
        ({"transform_n_nonzero_coefs": 5}, "must be at most 4, the smaller of atoms and features, got 5"),
        ({"transform_n_nonzero_coefs": 0}, "must be None or an integer of at least 1, got 0"),
        ({"transform_n_nonzero_coefs": 1.5}, "got 1.5"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"batch_size": True}, "batch_size must be an integer of at least 1, got True"),
        ({"max_no_improvement": None}, "max_no_improvement must be an integer of at least 1, got None"),
        ({"transform_algorithm": "lars"}, "transform_algorithm must be 'ols' or 'omp', got 'lars'"),
        ({"tol": -1.0}, "tol must be a number of at least 0, got -1.0"),
        ({"transform_tol": float("inf")}, "transform_tol must be a number of at least 0, got inf"),
        ({"replace_unused": "no"}, "replace_unused must be a number of at least 0, got 'no'"),
        ({"dict_init": np.ones((3, 6))}, r"dict_init must have the shape (4, 6), got (3, 6)"),
        ({"dict_init": np.zeros((4, 6))}, "dict_init must have no atom of zeros"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match="TopKDictionary: ") as caught:
        TopKDictionary(**{"n_components": 4, **options}).fit(np.random.default_rng(0).normal(size=(20, 6)))
    assert message in str(caught.value)


def test_without_scikit_learn_the_error_says_what_to_install(run_python):
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "try: import khot.apps.dictionary\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    assert run_python(code) == "khot.apps.dictionary needs scikit-learn: pip install 'khot[apps]'"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_whose_squares_overflow_are_refused_and_smaller_ones_have_finite_codes(dtype):
    X = np.random.default_rng(0).normal(size=(40, 6))
    most = float(np.finfo(dtype).max) ** 0.4 / np.abs(X).max()
    dictionary = TopKDictionary(n_components=4, transform_n_nonzero_coefs=2, max_iter=2, random_state=0)
    usual = dictionary.fit(X.astype(dtype)).transform(X.astype(dtype))
    large = (X * (0.99 * most)).astype(dtype)
    found = dictionary.fit(large).transform(large)
    np.testing.assert_allclose(found / (0.99 * most), usual, rtol=1e-3, atol=1e-4)
    for scale in (1.01 * most, most**2):
        too_large = (X * scale).astype(dtype)
        for call in (dictionary.fit, dictionary.partial_fit, dictionary.transform):
            with pytest.raises(ValueError, match="TopKDictionary: X must have values of at most"):
                call(too_large)
