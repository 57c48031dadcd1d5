"""Paths: their criteria by hand, the rule of one standard error, tables and pictures; shared terms."""

import itertools

import numpy as np
import pytest

from khot.apps.sindy import TermPath
from khot.apps.sindy._budget import shared_out
from khot.apps.sindy._search import Search
from khot.apps.sindy.path import term_paths


def regression(noise=0.5, samples=90):
    random = np.random.default_rng(2)
    library = random.normal(size=(samples, 6))
    return library, (library[:, [1, 4]] @ [2.0, -1.0] + noise * random.normal(size=samples))[:, None]


def residual(library, target, support):
    columns = library[:, list(support)]
    return target - columns @ np.linalg.lstsq(columns, target, rcond=None)[0]


@pytest.mark.parametrize(("criterion", "price"), [("bic", np.log(90)), ("aic", 2.0)])
def test_information_criteria(criterion, price):
    library, targets = regression()
    (path,) = term_paths(library, targets, 6, Search(), criterion=criterion)
    for k, support in enumerate(path.supports):
        error = np.square(residual(library, targets[:, 0], support)).sum() / np.square(targets).sum()
        assert path.errors[k] == pytest.approx(error)
        assert path.values[k] == pytest.approx(90 * np.log(error) + price * k)
    assert path.k == int(np.argmin(path.values))
    assert path.supports[2] == (1, 4)


def test_validation_by_hand():
    library, targets = regression()
    (path,) = term_paths(library, targets, 4, Search(), folds=3)
    held = np.zeros((3, 5))
    for fold, out in enumerate((slice(0, 30), slice(30, 60), slice(60, 90))):
        rest = np.r_[0:90][~np.isin(np.r_[0:90], np.r_[out])]
        for k in range(5):
            best = min(
                itertools.combinations(range(6), k),
                key=lambda s: np.square(residual(library[rest], targets[rest, 0], s)).sum(),
            )
            columns = library[:, list(best)]
            coefficients = np.linalg.lstsq(columns[rest], targets[rest, 0], rcond=None)[0]
            held[fold, k] = np.square(targets[out, 0] - columns[out] @ coefficients).mean()
    held /= np.square(targets).mean()
    np.testing.assert_allclose(path.values, held.mean(axis=0))
    np.testing.assert_allclose(path.deviations, held.std(axis=0, ddof=1) / np.sqrt(3))
    least = int(np.argmin(path.values))
    within = np.array(path.values) <= path.values[least] + path.deviations[least]
    assert path.k == int(np.argmax(within)) == 2


def test_a_target_of_zeros_has_no_terms():
    library, _ = regression()
    for criterion in ("validation", "bic", "aic"):
        (path,) = term_paths(library, np.zeros((90, 1)), 3, Search(), criterion=criterion)
        assert path.k == 0
        assert np.isfinite(path.values).all()


def test_the_table_names_terms():
    library, targets = regression()
    (path,) = term_paths(library, targets, 3, Search(), criterion="bic")
    table = path.table(["1", "x", "y", "z", "xy", "xz"])
    assert "| **2** |" in table
    assert table.splitlines()[4].endswith("| x, xy |")


def test_the_picture_shows_errors_and_the_choice():
    plt = pytest.importorskip("matplotlib.pyplot")
    library, targets = regression()
    for criterion, lines in (("validation", 3), ("bic", 2)):
        (path,) = term_paths(library, targets, 3, Search(), criterion=criterion)
        axes = path.plot(label="x'")
        assert len(axes.lines) == lines
        np.testing.assert_allclose(axes.lines[0].get_ydata(), path.errors)
        assert axes.lines[-1].get_xdata()[0] == path.k
        assert path.plot(axes) is axes
        plt.close("all")


def test_terms_are_shared_out_for_the_least_sum_of_logarithms():
    random = np.random.default_rng(0)
    for _ in range(20):
        errors = [np.sort(random.uniform(size=5))[::-1] for _ in range(3)]
        paths = [
            TermPath(tuple(tuple(range(k)) for k in range(5)), tuple(e), "bic", tuple(e), (0.0,) * 5, 0)
            for e in errors
        ]
        for total in range(13):
            shares = shared_out(paths, total, 0.0)
            assert sum(shares) == total
            best = min(
                sum(np.log(e[k]) for e, k in zip(errors, ks, strict=True))
                for ks in itertools.product(range(5), repeat=3)
                if sum(ks) == total
            )
            assert sum(np.log(e[k]) for e, k in zip(errors, shares, strict=True)) == pytest.approx(best)
