"""The experiments on selected features: runs, tables and pictures on small data in the place of the real."""

import gzip

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", minversion="1.6")

from khot.compare.report.grid import markdown
from khot_bench.reproduce import explained_rows, feature_sets
from khot_bench.reproduce.experiments import features, instancewise
from khot_bench.reproduce.feature_selectors import SELECTORS, Selector
from khot_bench.reproduce.feature_sets import GENES, Parts, parts_of
from khot_bench.reproduce.ledger import Ledger


def small_parts(name, split):
    rng = np.random.default_rng(split)
    x = rng.normal(size=(60, 80)).astype(np.float32)
    y = (x[:, 3] + x[:, 7] > 0).astype(int)
    return Parts((x[:40], y[:40]), (x[:0], y[:0]), (x[40:], y[40:]))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(features, "parts_of", small_parts)
    kept = ("SelectKBest(f_classif)", "random")
    fitted = {name: SELECTORS[name] for name in kept}
    first = Selector(SELECTORS["SelectKBest(f_classif)"].select, ranks=False)
    monkeypatch.setattr(features, "SELECTORS", {"TopKSelector": first, **fitted})


@pytest.mark.full
def test_every_table_of_small_runs(small, tmp_path):
    ledger = Ledger("features")
    runs = [r for r in features._runs(quick=False) if r["split"] < 2 and r["data"] in ("isolet", "khan")]
    for settings in runs:
        ledger.add(settings, features._run(settings), tmp_path / "runs.json")
    text = "\n".join(markdown(grid) for grid in features._tables(ledger))
    for wanted in ("k = 50: ", "k = 5: ", "Kuncheva", "LassoNet, published", "paired difference"):
        assert wanted in text
    # The same selector under two names: no difference, which is no gain on images and no loss on genes.
    assert "| isolet | 50 | 2 | SelectKBest(f_classif) | +0.000 ± 0.000 | not met |" in text
    assert "| khan | 10 | 2 | SelectKBest(f_classif) | +0.000 ± 0.000 | met |" in text
    features._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_whole_splits_first_k_first():
    runs = features._runs(quick=False)
    first = [r for r in runs if r["k"] == features.KS[r["data"] in GENES][0]]
    assert runs[: len(first)] == first
    quick = [r["split"] for r in first if not SELECTORS.get(r["method"], SELECTORS["random"]).slow]
    assert quick == sorted(quick)
    assert len({str(r) for r in runs}) == len(runs)


def test_one_split_for_the_slow_and_where_one_was_stopped():
    splits = {
        (name, data): features._splits(SELECTORS[name], data)
        for name in ("TopKSelector", "lassonet", "skscope")
        for data in ("mnist", "nci60", "khan")
    }
    assert splits == {
        ("TopKSelector", "mnist"): 5,
        ("TopKSelector", "nci60"): 5,
        ("TopKSelector", "khan"): 5,
        ("lassonet", "mnist"): 1,
        ("lassonet", "nci60"): 1,
        ("lassonet", "khan"): 1,
        ("skscope", "mnist"): 1,
        ("skscope", "nci60"): 1,
        ("skscope", "khan"): 5,
    }


def test_indices_of_stability_by_hand():
    assert features.overlap({1, 2}, {1, 2}, 10) == (1.0, 1.0)
    assert features.overlap({1, 2}, {3, 4}, 10) == (0.0, (0 - 4) / (2 * 8))
    assert features.overlap({1, 2}, {2, 3}, 4) == (1 / 3, 0.0)  # as chance has it


def test_splits_are_paired_and_apart(monkeypatch):
    x = np.arange(200.0).reshape(100, 2)
    monkeypatch.setattr(feature_sets, "_whole", lambda name: (x, np.arange(100) % 4))
    one, again, other = parts_of("isolet", 0), parts_of("isolet", 0), parts_of("isolet", 1)
    assert [len(part[0]) for part in one] == [70, 10, 20]
    rows = np.concatenate([part[0] for part in one])
    assert len(np.unique(rows, axis=0)) == 100
    assert np.array_equal(one.test[0], again.test[0])
    assert not np.array_equal(one.test[0], other.test[0])
    assert [len(part[0]) for part in parts_of("khan", 0)] == [70, 0, 30]


def test_mice_with_missing_values(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"Data_Cortex_Nuclear.csv.gz is missing: UCI Mice Protein"):
        feature_sets._mice()
    (tmp_path / "mice-protein").mkdir()
    with gzip.open(tmp_path / "mice-protein" / "Data_Cortex_Nuclear.csv.gz", "wt") as file:
        file.write("MouseID,A,B,Genotype,class\n1,1.0,2.0,x,c\n2,,4.0,x,d\n3,3.0,?,x,d\n")
    x, y = feature_sets._mice()
    assert x.tolist() == [[1, 2], [2, 4], [3, 3]]
    assert y.tolist() == ["c", "d", "d"]


def test_genes_say_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(feature_sets, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps ISLP"):
        feature_sets._khan()


@pytest.mark.parametrize("name", explained_rows.PROBLEMS)
def test_rows_are_decided_by_what_is_said_to(name):
    generator = torch.Generator().manual_seed(0)
    x, y, truth = explained_rows.problem(name, 4000, generator)
    parts = explained_rows.PROBLEMS[name]
    counts = {len(explained_rows._PARTS[part]) + (len(parts) > 1) for part in parts}
    assert set(truth.sum(1).tolist()) == counts
    assert 0.1 < y.float().mean() < 0.9
    if len(parts) > 1:
        first = x[:, 10] < 0
        assert truth[first][:, explained_rows._PARTS[parts[0]]].all()
        assert not truth[~first][:, explained_rows._PARTS[parts[0]]].any()


def test_rates_by_hand():
    truth = torch.tensor([[True, True, False, False], [False, False, False, True]])
    found = explained_rows._rates(torch.tensor([[0, 2], [3, 1]]), truth)
    assert found == {"true positives": 0.75, "false discoveries": 0.5}


def test_explained_rows_are_shown(tmp_path):
    ledger = Ledger("instancewise")
    for settings in instancewise._runs(quick=True):
        small = {**settings, "steps": 2}
        ledger.add(small, instancewise._run(small), tmp_path / "runs.json")
    (grid,) = instancewise._tables(ledger)
    assert "syn4 FDR" in markdown(grid)
    instancewise._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
