"""Orthogonal matching pursuit of many samples, against scikit-learn's and against least squares."""

import itertools

import numpy as np
import pytest
from sklearn.linear_model import orthogonal_mp_gram

from khot.apps.dictionary import _matching_pursuit
from khot.apps.dictionary._matching_pursuit import codes_of


def atoms_and_samples(atoms=20, features=12, samples=60, seed=0, dtype=np.float64):
    random = np.random.default_rng(seed)
    made = random.normal(size=(atoms, features))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(dtype), random.normal(size=(samples, features)).astype(dtype)


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_codes_are_those_of_scikit_learn(k):
    atoms, samples = atoms_and_samples()
    codes = codes_of(atoms, samples, k, algorithm="omp")
    expected = orthogonal_mp_gram(atoms @ atoms.T, atoms @ samples.T, n_nonzero_coefs=k).T
    np.testing.assert_allclose(codes, expected, atol=1e-10)
    assert (np.count_nonzero(codes, axis=1) == k).all()
    single = codes_of(atoms.astype(np.float32), samples.astype(np.float32), min(k, 5), algorithm="omp")
    assert single.dtype == np.float32
    if k <= 5:
        np.testing.assert_allclose(single, expected, atol=1e-4)


def test_each_step_takes_the_atom_most_like_the_residual():
    atoms, samples = atoms_and_samples()
    for k in range(3):
        before, after = (
            codes_of(atoms, samples, k, algorithm="omp"),
            codes_of(atoms, samples, k + 1, algorithm="omp"),
        )
        residual = samples - before @ atoms
        taken = np.abs(residual @ atoms.T).argmax(axis=1)
        assert (after[np.arange(len(samples)), taken] != 0).all()
        for row, sample in zip(after, samples, strict=True):
            chosen = np.flatnonzero(row)
            best = np.linalg.lstsq(atoms[chosen].T, sample, rcond=None)[0]
            np.testing.assert_allclose(row[chosen], best, atol=1e-10)


def test_one_atom_is_the_best_one():
    atoms, samples = atoms_and_samples()
    codes = codes_of(atoms, samples, 1, algorithm="omp")
    errors = np.square(samples - codes @ atoms).sum(axis=1)
    every = [np.square(samples - np.outer(samples @ a, a)).sum(axis=1) for a in atoms]
    np.testing.assert_allclose(errors, np.min(every, axis=0))


def test_blocks_do_not_change_the_codes(monkeypatch):
    atoms, samples = atoms_and_samples()
    whole = codes_of(atoms, samples, 3, algorithm="omp")
    monkeypatch.setattr(_matching_pursuit, "_ENTRIES", 20 * 7)
    np.testing.assert_allclose(codes_of(atoms, samples, 3, algorithm="omp"), whole, atol=1e-12)


def test_zero_samples_exact_fits_and_equal_atoms():
    atoms, samples = atoms_and_samples()
    atoms[1] = atoms[0]
    atoms[3] = -atoms[2]
    samples[0] = 0
    samples[1] = 3 * atoms[5]
    samples[2] = atoms[0] + 2 * atoms[2]
    codes = codes_of(atoms, samples, 4, algorithm="omp")
    assert np.isfinite(codes).all()
    assert not codes[0].any()
    assert np.flatnonzero(codes[1]).tolist() == [5]
    np.testing.assert_allclose(codes[:3] @ atoms, samples[:3], atol=1e-10)
    for first, second in itertools.product((0, 2), (1, 3)):
        if second == first + 1:
            assert not (codes[:, first] * codes[:, second]).any()  # never both of a pair
    for scale in (1e-150, 1e150):
        np.testing.assert_allclose(
            codes_of(atoms, scale * samples[4:9], 4, algorithm="omp"), scale * codes[4:9], rtol=1e-8
        )


def test_a_tolerance_ends_a_sample_early():
    atoms, samples = atoms_and_samples()
    bound = 4.0
    codes = codes_of(atoms, samples, 10, algorithm="omp", tol=bound)
    counts = np.count_nonzero(codes, axis=1)
    for count, sample in zip(counts, samples, strict=True):
        path = [codes_of(atoms, sample[None], k, algorithm="omp") for k in range(11)]
        errors = [float(np.square(sample - code @ atoms).sum()) for code in path]
        assert count == next(k for k, error in enumerate(errors) if error <= bound)
    assert len(set(counts)) > 2


def test_least_squares_takes_the_atom_that_lowers_the_error_most():
    atoms, samples = atoms_and_samples()
    codes = codes_of(atoms, samples, 4)
    for row, sample in zip(codes, samples, strict=True):
        taken: list[int] = []
        for _ in range(4):
            errors = {
                j: np.linalg.lstsq(atoms[[*taken, j]].T, sample, rcond=None)[1].sum()
                for j in range(20)
                if j not in taken
            }
            taken.append(min(errors, key=errors.get))
        expected = np.zeros(20)
        expected[taken] = np.linalg.lstsq(atoms[taken].T, sample, rcond=None)[0]
        np.testing.assert_allclose(row, expected, atol=1e-9)
    other = codes_of(atoms, samples, 4, algorithm="omp")
    errors = [np.square(samples - some @ atoms).sum() for some in (codes, other)]
    assert errors[0] < errors[1]
