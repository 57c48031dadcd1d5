"""The experiment on dictionaries: patches and pictures without scikit-image, and its tables."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from khot.compare.report.grid import markdown
from khot_bench.reproduce import picture_dictionaries
from khot_bench.reproduce.experiments import dictionary
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.picture_dictionaries import METHODS, PICTURES


@pytest.fixture
def small(monkeypatch):
    """A picture of stripes in place of scikit-image's."""
    side = 48
    across, down = np.meshgrid(np.arange(side), np.arange(side))
    stripes = 127 + 100 * np.sin(across / 2 + down / 5)
    monkeypatch.setattr(picture_dictionaries, "picture", lambda name: stripes)
    for name, value in (("SIDE", side), ("ATOMS", 16), ("TRAINED", 300), ("TESTED", 200)):
        monkeypatch.setattr(picture_dictionaries, name, value)


def test_a_denoised_picture_is_nearer_to_the_clean_one(small):
    numbers = picture_dictionaries.denoise("TopKDictionary", "any", 25, 2, 0)
    assert numbers["noisy"] == pytest.approx(20 * np.log10(255 / 25), abs=0.3)
    assert numbers["psnr"] > numbers["noisy"] + 5
    assert picture_dictionaries.describe_patches("TopKDictionary", "any", 2, 0)["error"] < 0.05


def test_descriptions_that_are_exact_give_the_picture_back(small, monkeypatch):
    monkeypatch.setitem(METHODS, "same", lambda patches, k, sigma, seed: lambda some: some)
    numbers = picture_dictionaries.denoise("same", "any", 25, 2, 0)
    assert numbers["psnr"] == pytest.approx(numbers["noisy"], abs=1e-4)


def test_tables_and_picture(small, tmp_path):
    ledger = Ledger("dictionary")
    for settings in (
        {"part": "patches", "picture": "camera", "seed": 0, "k": 5, "method": "TopKDictionary"},
        *(
            {"part": "noise", "picture": "camera", "seed": 0, "sigma": s, "k": k, "method": "TopKDictionary"}
            for s, k in dictionary.ATOMS_BY_NOISE.items()
        ),
    ):
        ledger.add(settings, dictionary._run(settings), tmp_path / "runs.json")
    text = "\n".join(markdown(grid) for grid in dictionary._tables(ledger))
    assert all(name in text for name in METHODS)
    assert "absent" in text
    assert "best" in text
    dictionary._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_the_whole_grid(monkeypatch):
    monkeypatch.setattr(dictionary, "available", lambda method: True)
    runs = dictionary._runs(quick=False)
    noise = [run for run in runs if run["part"] == "noise"]
    assert len(noise) == 3 * len(PICTURES) * 3 * len(METHODS)
    assert len(PICTURES) >= 6
    assert len(dictionary._runs(quick=True)) < len(runs) / 4
