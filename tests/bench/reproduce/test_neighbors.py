"""The experiment on neighbours: every loss trains, is judged, and is shown."""

import math

import pytest
import torch

from khot.compare.report.grid import markdown
from khot_bench.reproduce import neighbor_models
from khot_bench.reproduce.experiments import neighbors
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.neighbor_models import LOSSES, nca_loss


@pytest.fixture
def bright_places(monkeypatch):
    """Images whose bright place says the class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 10
    images = torch.rand(120, 1, 28, 28, generator=generator) / 4
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 2 * label : 2 * label + 4] += 0.7
    parts = (images[:90], labels[:90], images[90:], labels[90:])
    monkeypatch.setattr(neighbor_models, "_data", lambda name: parts)
    monkeypatch.setattr(neighbor_models, "VALIDATION", 20)
    monkeypatch.setattr(neighbor_models, "BATCH", 60)


@pytest.mark.full
def test_every_loss_trains_and_is_shown(bright_places, tmp_path):
    ledger = Ledger("neighbors")
    for settings in neighbors._runs(quick=False):
        if settings.get("seed", 0) in (1, 2) or settings.get("data") == "fashion-mnist":
            continue
        small = {**settings, **({"steps": 2} if "steps" in settings else {})}
        numbers = {"before": 0.2, "peak": 0.4} if small["part"] == "memory" else neighbors._run(small)
        ledger.add(small, numbers, tmp_path / "runs.json")
    text = "\n".join(markdown(grid) for grid in neighbors._tables(ledger))
    for wanted in (*LOSSES, "raw pixels, k = 3", "100000 × 128", "scale 8", "published"):
        assert wanted in text
    assert ledger.select("accuracy", part="pixels", k=3) == [100.0]
    neighbors._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_only_whole_seeds_are_compared():
    runs = [
        ({"part": "final", "data": "mnist", "seed": seed, "loss": loss}, {})
        for seed in (0, 1)
        for loss in LOSSES
    ]
    found = neighbors._whole_seeds(Ledger("neighbors", runs[:-1]), "mnist").runs
    assert found == runs[: len(LOSSES)]


def test_a_run_is_a_function_of_its_settings(bright_places):
    settings = {
        "part": "final",
        "data": "mnist",
        "seed": 1,
        "steps": 2,
        "loss": "NeighborLoss",
        "options": {},
    }
    first = neighbors._run(settings)
    torch.manual_seed(7)
    assert neighbors._run(settings)["accuracy"] == first["accuracy"]


def test_what_is_taken_was_tried():
    for loss, (name, values) in neighbors.TRIED.items():
        assert LOSSES[loss][name] in values


@pytest.mark.full
def test_memory_is_measured_in_a_process_of_its_own():
    found = neighbors._run({"part": "memory", "references": 2000, "queries": 8})
    assert 0.05 < found["before"] <= found["peak"] < 2


def test_nca_by_hand():
    x = torch.tensor([[0.0], [1.0], [3.0]])
    first = math.exp(-1) / (math.exp(-1) + math.exp(-9))
    second = math.exp(-1) / (math.exp(-1) + math.exp(-4))
    wanted = -(math.log(first) + math.log(second)) / 2
    assert nca_loss(x, torch.tensor([0, 0, 1]), 1.0).item() == pytest.approx(wanted, rel=1e-5)
