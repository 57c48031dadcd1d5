"""The search for best subsets, against least squares of every subset by numpy."""

import itertools
import math

import numpy as np
import pytest
import torch

from khot.apps.sindy._enumeration import best_by_enumeration
from khot.apps.sindy._equations import least_squares, reduce_equations
from khot.apps.sindy._exchange import backward, best_by_exchange, exchange, forward, random_starts
from khot.apps.sindy._search import Search
from khot.apps.sindy._soft_start import soft_starts


def problem(seed, samples=60, terms=9, noise=0.5, scale=None):
    """Correlated columns of any scale, and two targets of a few of them."""
    random = np.random.default_rng(seed)
    library = random.normal(size=(samples, terms)) @ (
        np.eye(terms) + 0.4 * random.normal(size=(terms, terms))
    )
    library *= 10.0 ** random.uniform(-3, 3, size=terms) if scale is None else scale
    weights = np.zeros((terms, 2))
    weights[random.permutation(terms)[:3], 0] = 1
    weights[random.permutation(terms)[:4], 1] = 1
    clean = (library / np.linalg.norm(library, axis=0)) @ weights
    return library, clean + noise * clean.std() * random.normal(size=clean.shape)


def true_error(library, target, support, alpha=0.0):
    """Of the ridge problem, as a share of the target's squares."""
    columns = library[:, list(support)]
    if alpha:
        columns = np.concatenate([columns, math.sqrt(alpha) * np.eye(len(support))])
        target = np.concatenate([target, np.zeros(len(support))])
    coefficients = np.linalg.lstsq(columns, target, rcond=None)[0]
    return np.square(target - columns @ coefficients).sum() / np.square(target).sum()


def true_best(library, target, k, alpha=0.0):
    subsets = itertools.combinations(range(library.shape[1]), k)
    return min(subsets, key=lambda support: true_error(library, target, support, alpha))


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_errors_are_those_of_least_squares(alpha):
    library, targets = problem(0, scale=2.0)
    equations = reduce_equations(library, targets, alpha)
    assert len(equations.columns) <= library.shape[1] + 2
    for support in ((), (3,), (0, 4, 8), tuple(range(9))):
        for e in range(2):
            expected = true_error(library, targets[:, e], support, alpha) if support else 1.0
            assert equations.error(e, support) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [0, 1, 2, 4, 8, 9])
def test_enumeration_finds_the_best(k):
    for seed in range(3):
        library, targets = problem(seed)
        equations = reduce_equations(library, targets)
        for e in range(2):
            found = best_by_enumeration(equations.columns, equations.targets[:, e], k)
            assert found == true_best(library, targets[:, e], k)


def test_enumeration_goes_over_several_blocks():
    library, targets = problem(5, terms=14, noise=0.2)
    equations = reduce_equations(library, targets)  # 3003 subsets
    found = best_by_enumeration(equations.columns, equations.targets[:, 0], 6)
    others = itertools.combinations(range(14), 6)
    assert equations.error(0, found) == min(equations.error(0, s) for s in others)


def test_exchange_ends_where_no_swap_helps():
    library, targets = problem(1, terms=12, noise=1.0)
    equations = reduce_equations(library, targets)
    for start in random_starts(12, 4, 10, np.random.default_rng(0)):
        support, error = exchange(equations, 0, start)
        assert error == pytest.approx(true_error(library, targets[:, 0], support))
        assert error <= equations.error(0, start)
        for leaving, entering in itertools.product(support, set(range(12)) - set(support)):
            assert true_error(library, targets[:, 0], {*support, entering} - {leaving}) > error * (1 - 1e-8)


def test_several_starts_find_the_best_where_a_greedy_one_does_not():
    greedy = several = 0
    for seed in range(20):
        library, targets = problem(seed, terms=12, noise=1.0)
        equations = reduce_equations(library, targets)
        best = best_by_enumeration(equations.columns, equations.targets[:, 1], 4)
        greedy += exchange(equations, 1, forward(equations, 1, 4))[0] == best
        several += Search("exchange").best(equations, 1, 4)[0] == best
    assert several == 20
    assert greedy < 20


def test_exchange_takes_the_best_of_its_starts():
    library, targets = problem(2, terms=12, noise=1.0)
    equations = reduce_equations(library, targets)
    starts = random_starts(12, 4, 8, np.random.default_rng(0))
    found, error = best_by_exchange(equations, 0, starts)
    assert error == min(exchange(equations, 0, start)[1] for start in starts)
    assert equations.error(0, found) == error


def test_forward_and_backward_take_the_best_step():
    library, targets = problem(3)
    equations = reduce_equations(library, targets)
    (first,) = forward(equations, 0, 1)
    assert first == true_best(library, targets[:, 0], 1)[0]
    more = set(forward(equations, 0, 3, (0, 5))) - {0, 5}
    assert more == {min(set(range(9)) - {0, 5}, key=lambda j: true_error(library, targets[:, 0], (0, 5, j)))}
    fewer = backward(equations, 0, 8, range(9))
    assert fewer == true_best(library, targets[:, 0], 8)


def test_a_path_is_the_best_for_every_k_and_does_not_rise():
    library, targets = problem(4, terms=10, noise=1.0)
    equations = reduce_equations(library, targets)
    for method in ("enumerate", "exchange"):
        path = Search(method).path(equations, 1, 10)
        assert [len(support) for support, _ in path] == list(range(11))
        assert [support for support, _ in path] == [true_best(library, targets[:, 1], k) for k in range(11)]
        errors = [error for _, error in path]
        assert all(later <= error * (1 + 1e-12) for error, later in itertools.pairwise(errors))


def test_the_options_of_a_search_are_read(monkeypatch):
    library, targets = problem(0, terms=12)
    equations = reduce_equations(library, targets)
    enumerated, drawn, soft = [], [], []
    module = "khot.apps.sindy._search."
    monkeypatch.setattr(
        module + "best_by_enumeration", lambda c, t, k: enumerated.append(k) or tuple(range(k))
    )
    monkeypatch.setattr(
        module + "random_starts", lambda p, k, count, g: drawn.append((count, g.random())) or []
    )
    monkeypatch.setattr(module + "soft_starts", lambda e, which, ks: soft.append(ks) or [])
    Search(max_subsets=220).best(equations, 0, 3)
    assert (enumerated, drawn) == ([3], [])
    Search(max_subsets=219, restarts=7).best(equations, 0, 3)
    Search(max_subsets=219, restarts=8, seed=1, soft_start=True).best(equations, 0, 3)
    assert [count for count, _ in drawn] == [7, 8]
    assert drawn[0][1] != drawn[1][1]
    assert (enumerated, soft) == ([3], [[3]])


def test_too_many_subsets_are_refused():
    equations = reduce_equations(np.eye(60), np.ones((60, 1)))
    with pytest.raises(ValueError, match=r"search='enumerate' would try 7.54e\+10 subsets, 10 of 60 terms"):
        Search("enumerate").best(equations, 0, 10)


def test_zero_equal_and_huge_columns():
    random = np.random.default_rng(0)
    library = random.normal(size=(50, 6))
    library[:, 1] = 0
    library[:, 3] = 2 * library[:, 0]
    library[:, 4] *= 1e200
    targets = np.stack([library[:, 0] + library[:, 2], np.zeros(50)], axis=1)
    for method in ("enumerate", "exchange"):
        equations = reduce_equations(library, targets)
        support, error = Search(method).best(equations, 0, 2)
        assert support in ((0, 2), (2, 3))
        assert error < 1e-20
        for k in range(7):
            for e in range(2):
                support, error = Search(method).best(equations, e, k)
                assert len(set(support)) == k
                assert np.isfinite(error)


def test_nearly_dependent_columns_keep_their_accuracy():
    """Two columns 3e-5 apart: their squared distance, 1e-9, is near the rounding of a Gram matrix."""
    random = np.random.default_rng(0)
    a, b, c = random.normal(size=(3, 300))
    library = np.stack([a, a + 3e-5 * b, c, b + 0.5 * a + 0.1 * c], axis=1)
    target = library[:, 0] - library[:, 1]
    equations = reduce_equations(library, target[:, None])
    assert Search("enumerate").best(equations, 0, 2)[0] == (0, 1)
    assert Search("exchange").best(equations, 0, 2)[0] == (0, 1)


def test_soft_starts_find_clear_supports():
    library, targets = problem(6, samples=200, noise=0.05)
    equations = reduce_equations(library, targets)
    starts = soft_starts(equations, [0, 1], [3, 4])
    with torch.inference_mode():
        assert soft_starts(equations, [0, 1], [3, 4]) == starts
    assert starts == [true_best(library, targets[:, 0], 3), true_best(library, targets[:, 1], 4)]


def test_coefficients_with_and_without_ridge():
    library, targets = problem(0, scale=1.5)
    plain = least_squares(library, targets[:, 0], 0.0)
    np.testing.assert_allclose(plain, np.linalg.lstsq(library, targets[:, 0], rcond=None)[0], rtol=1e-8)
    ridge = np.linalg.solve(library.T @ library + 0.7 * np.eye(9), library.T @ targets[:, 0])
    np.testing.assert_allclose(least_squares(library, targets[:, 0], 0.7), ridge, rtol=1e-8)
