"""Ensembles made one of exactly k terms."""

import numpy as np
import pytest

from khot.apps.sindy import MostFrequentTerms, inclusion_frequencies

MODELS = [
    np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]]),
    np.array([[1.2, 0.0, 3.0, 0.0], [0.0, 4.0, 5.5, 0.0]]),
    np.array([[1.4, 2.2, 0.0, 0.0], [0.0, 4.5, 6.0, 0.0]]),
    np.array([[0.0, 2.4, 3.2, 0.0], [9.0, 0.0, 7.0, 0.0]]),
]


def test_frequencies():
    expected = [[0.75, 0.75, 0.5, 0.0], [0.25, 0.5, 1.0, 0.25]]
    assert inclusion_frequencies(MODELS).tolist() == expected


def test_the_most_frequent_k_with_the_median_where_included():
    kept = MostFrequentTerms(2)(MODELS)
    np.testing.assert_allclose(kept, [[1.2, 2.2, 0, 0], [0, 4.25, 5.75, 0]])
    assert np.count_nonzero(np.median(MODELS, axis=0), axis=1).tolist() != [2, 2]  # why it is needed
    mean = MostFrequentTerms(2, value="mean")(MODELS)
    np.testing.assert_allclose(mean, [[1.2, 2.2, 0, 0], [0, 4.25, 5.875, 0]])


def test_k_for_each_equation_and_in_all():
    assert np.count_nonzero(MostFrequentTerms((1, 3))(MODELS), axis=1).tolist() == [1, 3]
    total = MostFrequentTerms(3, per_target=False)(MODELS)
    assert np.flatnonzero(total).tolist() == [0, 1, 6]


def test_ties_go_to_the_larger_coefficient():
    kept = MostFrequentTerms(1)([np.array([[1.0, -2.0, 1.5]])] * 3)
    assert kept.tolist() == [[0.0, -2.0, 0.0]]


def test_no_more_terms_than_models_have():
    assert np.count_nonzero(MostFrequentTerms(4)(MODELS), axis=1).tolist() == [3, 4]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="value must be 'median' or 'mean', got 'mode'"):
        MostFrequentTerms(2, value="mode")
    with pytest.raises(
        ValueError, match="MostFrequentTerms: k must be from 0 to 4, the terms there are, got 5"
    ):
        MostFrequentTerms(5)(MODELS)
    with pytest.raises(ValueError, match="those of one model or more, got none"):
        MostFrequentTerms(1)([])
    with pytest.raises(ValueError, match=r"each model must be \(equations, terms\), got the shape \(4,\)"):
        inclusion_frequencies([np.ones(4)])
    assert repr(MostFrequentTerms(3)) == "MostFrequentTerms(3, per_target=True, value='median')"
