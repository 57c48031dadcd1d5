"""ExactK and TopKDictionary beside the real packages: Gurobi's MIOSR, systems of dysts, ksvd and spams."""

import warnings

import numpy as np
import pysindy
import pytest
import spams
from ksvd import ApproximateKSVD

from khot.apps.dictionary import TopKDictionary
from khot.apps.dictionary._matching_pursuit import codes_of
from khot.apps.sindy import ExactK
from khot_bench.reproduce import equation_methods, known_equations, picture_dictionaries


@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_of_mixed_integer_programming(seed):
    """MIOSR proves its optimum, on problems that are small enough for the restricted licence."""
    random = np.random.default_rng(seed)
    library = random.normal(size=(80, 12)) @ (np.eye(12) + 0.4 * random.normal(size=(12, 12)))
    targets = library[:, [1, 4, 7]] @ random.normal(size=(3, 2)) + random.normal(size=(80, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proved = pysindy.MIOSR(group_sparsity=(3, 4), target_sparsity=None, alpha=0.0).fit(library, targets)
    for search in ("enumerate", "exchange"):
        ours = ExactK((3, 4), search=search).fit(library, targets)
        assert (ours.ind_ == (np.abs(proved.coef_) > 1e-8)).all()


def test_the_81_systems_of_dysts():
    names = known_equations.polynomial_systems()
    assert len(names) == 81
    lorenz = known_equations.polynomial_system("Lorenz", 0.0, 0)
    assert lorenz.terms == known_equations.lorenz(0.0, 0).terms
    for name in ("Rossler", "Lorenz", "Thomas" if "Thomas" in names else "Chen"):
        known = known_equations.polynomial_system(name, 0.0, 0)
        assert equation_methods.score("ExactK, told each k", known, 3, 8)["exact"] == 1.0


def test_a_large_model_is_refused_by_the_licence_and_counted():
    numbers = equation_methods.score("MIOSR, told each k", known_equations.lorenz(0.0, 0), 10, 8)
    assert (numbers["failed"], numbers["too large"]) == (1.0, 1.0)


def test_codes_are_those_of_spams():
    """What spams calls OMP takes the atom that lowers the error most."""
    random = np.random.default_rng(0)
    atoms = random.normal(size=(40, 20))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    samples = random.normal(size=(100, 20))
    theirs = spams.omp(np.asfortranarray(samples.T), np.asfortranarray(atoms.T), L=4, numThreads=1)
    np.testing.assert_allclose(codes_of(atoms, samples, 4), theirs.toarray().T, atol=1e-8)


def test_no_worse_than_ksvd_on_patches():
    patches = np.lib.stride_tricks.sliding_window_view(picture_dictionaries.picture("camera"), (8, 8))
    patches = patches[::3, ::3].reshape(-1, 64) / 255
    patches = patches - patches.mean(axis=1, keepdims=True)
    ours = TopKDictionary(96, transform_n_nonzero_coefs=4, random_state=0).fit(patches)
    theirs = ApproximateKSVD(96, max_iter=5, transform_n_nonzero_coefs=4)
    theirs.fit(patches)
    rest = patches - ours.inverse_transform(ours.transform(patches))
    assert np.square(rest).sum() <= np.square(patches - theirs.transform(patches) @ theirs.components_).sum()
