"""The experiment with networks that select: operations counted by hand, a table of what is done."""

import pytest

from khot_bench.reproduce.experiments import load_reproduction
from khot_bench.reproduce.experiments.topknets import operations
from khot_bench.reproduce.ledger import Ledger

MODELS = ("vit", "topk_attention", "topk_dynamic")


def flop_by_hand(model: str, tokens: int, pixels: int, classes: int) -> int:
    """Twice the multiplications of one image, from the definitions; width 48, 3 blocks, 4 heads, k = 4."""
    width, blocks, k = 48, 3, 4
    total = tokens * pixels * width + width * classes
    count = tokens + (model == "vit")
    if model == "topk_dynamic":
        inner = 2 * width
        mixing = (
            count * width * inner + inner * count**2 + count * inner * (inner + 4) + count * inner * width
        )
        # rows times values; then values times gathered, twice
        through = k * count * inner + 2 * count * k * inner
        attention, mlp_units = 4 * width**2 + 4 * width, 4 * width
        size = 8 * width**2 + 6 * inner + width + tokens**2 + tokens + 4 + 4
        mlp_units -= round((size - attention) / (2 * width + 1))
    else:
        mixing, mlp_units = 4 * count * width**2, 4 * width
        through = 2 * count * (count if model == "vit" else k) * width
    return 2 * (total + blocks * (mixing + through + 2 * count * width * mlp_units))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("data", "pixels", "classes"), [("digits", 4, 10), ("digit-pairs", 8, 100)])
def test_the_operations_are_those_counted_by_hand(model, data, pixels, classes):
    assert operations(model, data) == flop_by_hand(model, 16, pixels, classes)


def test_the_plan_has_three_seeds_and_the_three_models_everywhere():
    runs = [run for run in load_reproduction("topknets").runs(False) if run["part"] == "training"]
    for data in ("digits", "digit-pairs", "mnist"):
        found = {(run["model"], run["seed"]) for run in runs if run["data"] == data}
        assert found == {(model, seed) for model in MODELS for seed in range(3)}


def test_the_table_shows_what_is_done(tmp_path):
    reproduction = load_reproduction("topknets")
    ledger = Ledger("topknets", origin="here")
    for seed, top1 in enumerate((0.9, 0.8)):
        settings = {"part": "training", "data": "digits", "model": "vit", "seed": seed, "epochs": 1}
        ledger.runs.append((settings, {"top-1": top1, "top-5": 1.0, "parameters": 7}))
    ledger.runs.append(({"part": "cost", "data": "digits"}, {"vit flop": 2e6, "vit seconds": 1e-4}))
    shorter = {"part": "training", "data": "digits", "model": "vit", "seed": 0, "epochs": 0}
    ledger.runs.append((shorter, {"top-1": 0.1, "top-5": 1.0, "parameters": 7}))
    (grid,) = reproduction.tables(ledger)
    assert grid.rows == (("digits", "plain transformer", "85.0 ± 5.0", "100.0", "7", "2.00", "100 µs"),)
    assert grid.notes[0].startswith("digits: 2 seeds, 1 epoch. ")
    reproduction.plot(ledger, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("</svg>") == 1
