"""The experiment on sparse networks: every way trains to its density, and is shown."""

import gzip
import struct

import pytest
import torch

from khot.compare.report.grid import markdown
from khot_bench.reproduce import sparse_models
from khot_bench.reproduce.experiments import sparse
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.sparse_models import WAYS


def write_idx(path, values):
    header = struct.pack(f">4B{values.dim()}I", 0, 0, 8, values.dim(), *values.shape)
    path.write_bytes(gzip.compress(header + bytes(values.flatten().tolist())))


@pytest.fixture
def little_images(tmp_path, monkeypatch):
    """Images whose bright half tells their class."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for stem, count in (("train", 640), ("t10k", 100)):
        labels = torch.randint(2, (count,), generator=generator)
        images = torch.randint(0, 100, (count, 28, 28), generator=generator)
        images[:, :14] += 100 * labels.view(-1, 1, 1)
        write_idx(folder / f"{stem}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte.gz", labels)
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(sparse_models, "BATCH", 16)
    sparse_models._data.cache_clear()
    sparse_models._dense.cache_clear()
    yield tmp_path
    sparse_models._data.cache_clear()
    sparse_models._dense.cache_clear()


@pytest.mark.parametrize("way", ["dense", *WAYS])
def test_every_way_trains_to_its_density(way, little_images):
    density = 1.0 if way == "dense" else 0.1
    settings = {"part": "accuracy", "network": "perceptron", "data": "mnist", "seed": 0, "epochs": 2}
    numbers = sparse._run({**settings, "way": way, "density": density})
    assert numbers["weights"] == 266200
    if way == "RigL":  # weights that have just grown are 0
        assert 0.9 * 26620 <= numbers["kept"] <= 26620
    else:
        assert numbers["kept"] == round(density * 266200)
    assert numbers["accuracy"] > 0.9
    if way in ("prune, one shot", "khot, kept"):
        torch.manual_seed(5)
        assert sparse._run({**settings, "way": way, "density": density}) == numbers


@pytest.mark.slow
@pytest.mark.full
def test_the_quick_runs_are_shown(little_images, tmp_path):
    ledger = Ledger("sparse")
    for settings in sparse._runs(quick=True):
        ledger.add(settings, sparse._run(settings), tmp_path / "runs.json")
    text = "\n".join(markdown(grid) for grid in sparse._tables(ledger))
    assert all(way in text for way in WAYS)
    assert "every 10 steps" in text
    sparse._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_the_whole_grid_is_asked_for_seed_by_seed():
    runs = sparse._runs(quick=False)
    perceptrons = [r for r in runs if r.get("network") == "perceptron" and r["part"] == "accuracy"]
    assert len(perceptrons) == 3 * 2 * (1 + 6 * len(WAYS))
    for network in ("perceptron", "convnet"):
        for data in ("mnist", "fashion-mnist"):
            of = [r for r in runs if r["network"] == network and r.get("data") == data and r["way"] == "RigL"]
            assert [r["seed"] for r in of] == sorted(r["seed"] for r in of)
    convnets = [r for r in runs if r["network"] == "convnet" and r["part"] == "accuracy"]
    assert {r["density"] for r in convnets} == {1.0, 0.1, 0.05, 0.01}
