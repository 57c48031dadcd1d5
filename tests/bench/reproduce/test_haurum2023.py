"""The experiment on token reduction: every method runs, what was trained is not trained again."""

import pytest
import torch

from khot.compare.report.grid import markdown
from khot.vision.data import ImageTensors
from khot_bench.reproduce.experiments import _haurum2023_networks as networks
from khot_bench.reproduce.experiments import haurum2023
from khot_bench.reproduce.ledger import Ledger


@pytest.fixture
def little_data(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 28, 28), generator=generator).to(torch.uint8)
    data = ImageTensors(images, torch.arange(60) % 10, tuple("0123456789"))
    monkeypatch.setattr(networks, "_images", lambda name, train: data)
    monkeypatch.setattr(networks.tempfile, "gettempdir", lambda: str(tmp_path))
    networks._mean_and_deviation.cache_clear()
    yield tmp_path
    networks._mean_and_deviation.cache_clear()


@pytest.mark.slow
@pytest.mark.full
def test_every_method_runs_and_is_shown(little_data, tmp_path, monkeypatch):
    ledger = Ledger("haurum2023")
    trained = []
    train, cooled = networks.train, []

    def counted(model, data, images, **settings):
        trained.append(images)
        train(model, data, images, **settings)

    for module in (networks, haurum2023):
        monkeypatch.setattr(module, "train", counted)

    class Scheduler(networks.TemperatureScheduler):
        def __init__(self, module, schedule):
            cooled.append(module.mode)
            super().__init__(module, schedule)

    monkeypatch.setattr(networks, "TemperatureScheduler", Scheduler)
    for settings in haurum2023._runs(quick=True):
        sizes = {"base_images": 100, "tuning_images": 50, "test_images": 60}
        small = {**settings, **({} if "part" in settings else sizes)}
        ledger.add(small, haurum2023._run(small), tmp_path / "runs.json")
    assert trained.count(100) == 1
    assert trained.count(50) == 6  # all tokens, and five of the methods
    assert cooled == ["soft"]
    assert len(ledger.runs) == 2 + len(haurum2023.METHODS) + len(haurum2023.SPEEDS)
    full = ledger.select("flops", method=haurum2023.ALL)[0]
    for method in haurum2023.METHODS:
        assert ledger.select("flops", method=method)[0] < 0.7 * full
        assert ledger.select("tokens", method=method)[0] == 16 + ("EViT" in method)
    text = "\n".join(markdown(grid) for grid in haurum2023._tables(ledger))
    assert all(method in text for method in haurum2023.METHODS)
    assert "79.8" in text
    assert all(speed > 0 for speed in ledger.select("speed-up", part="speed"))
    haurum2023._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_the_whole_grid_is_asked_for():
    runs = haurum2023._runs(quick=False)
    assert len(runs) == haurum2023.SEEDS * 2 * (2 + 4 * len(haurum2023.METHODS)) + 4 * len(haurum2023.SPEEDS)
    assert {run["keep_rate"] for run in runs} == {1.0, 0.9, 0.7, 0.5, 0.25}
    assert {run["data"] for run in runs if "data" in run} == {"mnist", "fashion-mnist"}
