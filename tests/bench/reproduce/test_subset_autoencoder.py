"""The autoencoder of `khot reproduce estimators` learns; its tables and picture are made."""

import math

import pytest
import torch

from khot.estimators import get
from khot_bench.reproduce.experiments import load_reproduction
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.subset_autoencoder import WITH_ENTROPY, Task, train

# Two patterns, one the other's opposite: without a code that tells them apart the loss is 16 log 2.
IMAGES = torch.tensor([[1.0, 0.0] * 8, [0.0, 1.0] * 8]).repeat(10, 1)


def task(steps, divergence=False):
    return Task(units=8, chosen=3, hidden=32, batch=20, steps=steps, divergence=divergence)


# From losses, through the sample, and through a relaxed one.
@pytest.mark.parametrize("name", ["score_function", "gumbel_straight_through", "relaxed_subset"])
def test_it_learns(name):
    before = train(get(name), task(0), IMAGES, IMAGES, seed=0)
    after = train(get(name), task(120), IMAGES, IMAGES, seed=0)
    assert before["sampled"] == pytest.approx(16 * math.log(2), rel=0.05)
    assert after["sampled"] < 0.7 * before["sampled"]
    assert ("divergence" in after) == (get(name).design in WITH_ENTROPY)


def test_the_divergence_keeps_the_code_random():
    free, bound = (
        train(get("simple"), task(40, d), IMAGES, IMAGES, seed=0)["divergence"] for d in (False, True)
    )
    assert 0 <= bound < free <= math.log(math.comb(8, 3))


@pytest.mark.slow
def test_tables_and_picture(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    reproduction = load_reproduction("estimators")
    runs = reproduction.runs(False)
    assert len({str(run) for run in runs}) == len(runs)
    numbers = {
        f"{number} {label}": 0.5
        for label in dict.fromkeys(row[0] for row in _toy_rows(reproduction))
        for number in ("bias", "noise", "variance", "cosine", "cosine_each")
    }
    ledger = Ledger("estimators")
    for run in runs:
        done = numbers if run["part"] == "toy" else {"sampled": 30.0, "largest": 29.0, "divergence": 5.0}
        ledger.runs.append((dict(run), done))
    grids = reproduction.tables(ledger)
    assert [len(grid.rows) for grid in grids] == [12, 12, 13]
    assert ("SIMPLE", "yes", "30.00 ± 0.00", "29.00 ± 0.00", "35.00 ± 0.00") in grids[2].rows
    reproduction.plot(ledger, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1000


def _toy_rows(reproduction):
    """The labels, from one small run of the toy itself."""
    found = reproduction.run({"part": "toy", "loss": "not linear", "seed": 0, "repeats": 10})
    return [(key.partition(" ")[2],) for key in found]
