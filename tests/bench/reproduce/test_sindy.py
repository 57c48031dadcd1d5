"""The experiment on equations: its data, its parts, what is absent, and its tables."""

import numpy as np
import pytest

pytest.importorskip("pysindy")

from khot.compare.report.grid import markdown
from khot_bench.reproduce import equation_methods, known_equations
from khot_bench.reproduce.experiments import sindy
from khot_bench.reproduce.experiments._sindy_tables import ON_SYSTEMS, STARTS, draw, tables
from khot_bench.reproduce.ledger import Ledger

CACHED = ("_terms", "_model", "_trajectory", "polynomial_system", "polynomial_systems")


class Model:
    """A system of dysts' kind: Lorenz's, in its own time."""

    ic, period = (-8.0, 8.0, 27.0), 1.5

    @staticmethod
    def rhs(x, t):
        return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


class Driven(Model):
    @staticmethod
    def rhs(x, t):
        return [x[1], -x[0] + np.cos(t), 1.0]


class InPieces(Model):
    @staticmethod
    def rhs(x, t):
        return [x[1], -x[0] + max(abs(x[2]), 3.0), x[0]]


@pytest.fixture
def systems(monkeypatch):
    models = {"Lorenz": Model, "Driven": Driven, "InPieces": InPieces}
    space = type("flows", (), models)
    monkeypatch.setattr(known_equations, "_flows", lambda: space)
    monkeypatch.setattr(sindy, "has_dysts", lambda: True)
    caches = [getattr(known_equations, name) for name in CACHED]
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_terms_are_read_off_the_right_hand_side(systems):
    assert known_equations.polynomial_systems() == ("Lorenz",)
    known = known_equations.polynomial_system("Lorenz", 0.0, 0)
    assert known.terms == known_equations.lorenz(0.0, 0).terms
    assert known.x.shape == (4000, 3)
    noisy = known_equations.polynomial_system("Lorenz", 0.01, 0)
    share = np.sqrt(np.square(noisy.x - known.x).mean(axis=0) / np.square(known.x).mean(axis=0))
    np.testing.assert_allclose(share, 0.01, rtol=0.1)


def test_agreement_by_hand():
    true = [frozenset({(1, 0), (0, 1)}), frozenset({(2, 0)})]
    assert equation_methods.agreement([{(1, 0), (0, 1)}, {(2, 0)}], true) == {"f1": 1.0, "exact": 1.0}
    half = equation_methods.agreement([{(1, 0)}, {(1, 1), (2, 0)}], true)
    assert half == {"f1": 2 * 2 / 6, "exact": 0.0}


def test_the_whole_grid_and_the_quick_one(systems, monkeypatch):
    monkeypatch.setattr(sindy, "available", lambda method: True)
    whole = sindy._runs(quick=False)
    count = {
        part: sum(run["part"] == part for run in whole) for part in ("lorenz", "search", "large", "systems")
    }
    assert count["lorenz"] == 10 * 4 * len(equation_methods.METHODS)
    assert count["search"] == 2 * 4 * 10 + 30
    assert count["systems"] == 2 * len(ON_SYSTEMS)
    assert len(sindy._runs(quick=True)) < len(whole) / 4
    monkeypatch.setattr(sindy, "available", lambda method: not method.startswith("MIOSR"))
    assert not any("MIOSR" in run.get("method", "") for run in sindy._runs(quick=False))


@pytest.mark.full
def test_every_part_runs_and_is_shown(systems, tmp_path):
    ledger = Ledger("sindy")
    told, validated = "ExactK, told each k", "ExactK, k by validation"
    for settings in (
        {"part": "lorenz", "noise": 0.0, "seed": 0, "method": told},
        {"part": "lorenz", "noise": 0.05, "seed": 0, "method": validated},
        {"part": "lorenz", "noise": 0.0, "seed": 0, "method": "STLSQ(0.1)"},
        {"part": "search", "problem": "Lorenz, smoothed", "noise": 0.01, "seed": 0},
        {"part": "systems", "system": "Lorenz", "noise": 0.0, "seed": 0, "method": told},
    ):
        ledger.add(settings, sindy._run(settings), tmp_path / "runs.json")
    assert ledger.select("exact", method=told) == [1.0, 1.0]
    assert ledger.select("f1", method=validated) == [1.0]
    assert ledger.select("greedy and 20 random", part="search") == [1.0]
    failed = {"f1": 0.0, "exact": 0.0, "seconds": 0.0, "failed": 1.0, "too large": 1.0}
    settings = {
        "part": "systems",
        "system": "Lorenz",
        "noise": 0.0,
        "seed": 0,
        "method": "MIOSR, told each k",
    }
    ledger.add(settings, failed, tmp_path / "runs.json")
    text = "\n".join(markdown(grid) for grid in tables(ledger))
    assert all(name in text for name in (*equation_methods.METHODS, *STARTS))
    assert "1 of 1" in text
    assert "Absent, because a package was not installed: " in text
    draw(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
