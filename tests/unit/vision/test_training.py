"""Training learns, reads every setting, and goes on to the same result when it was stopped."""

import csv
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, top_k_accuracy_score
from torch import nn

from khot.vision import load_network, preset_names
from khot.vision.data import ImageTensors
from khot.vision.training import RunConfig, TrainSettings, evaluate, run_preset, train
from strategies.quick_run import costly
from strategies.small_runs import bright_halves, small_run

DATA = (bright_halves(), bright_halves(20, seed=1))


def weights(folder) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in load_network(folder).state_dict().values()])


def without_time(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize("model", ["topk_attention", costly("topk_dynamic"), costly("vit")])
def test_it_learns_and_writes_what_it_found(model, tmp_path):
    results = train(
        small_run({"model": model}, epochs=15, batch_size=8, learning_rate=0.02), tmp_path, data=DATA
    )
    assert results["top1"] == 1
    losses = [row["train_loss"] for row in results["epochs"]]
    assert losses[-1] < 0.6 * losses[0]
    assert json.loads((tmp_path / "results.json").read_text()) == results
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [{name: float(text) for name, text in row.items()} for row in rows] == results["epochs"]
    network = load_network(tmp_path)
    again = evaluate(network, DATA[1])
    assert again["top1"] == 1
    assert again["loss"] == pytest.approx(results["test_loss"], rel=1e-5)
    assert results["parameters"] == sum(p.numel() for p in network.parameters())


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("stop_at", [costly(1), costly(4), costly(7), 11])
def test_a_stopped_run_goes_on_to_the_same_result(stop_at, tmp_path):
    """With all noise there is: order, shifts, mixup, dropout. 3 steps an epoch, kept every 2."""
    config = small_run({"dropout": 0.2}, epochs=4, mixup=0.5, checkpoint_steps=2)
    whole = train(config, tmp_path / "whole", data=DATA)
    calls = 0

    def stop(message, share):
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(config, tmp_path / "parts", data=DATA, report=stop)
    resumed = []
    parts = train(config, tmp_path / "parts", data=DATA, report=lambda message, share: resumed.append(share))
    assert resumed[0] == pytest.approx((2 * ((stop_at - 1) % 3 // 2) + 3 * ((stop_at - 1) // 3) + 1) / 12)
    assert without_time(parts["epochs"]) == without_time(whole["epochs"])
    assert torch.equal(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_a_finished_run_is_not_done_again(tmp_path):
    results = train(small_run(), tmp_path, data=DATA)
    reports = []
    again = train(small_run(), tmp_path, data=DATA, report=lambda message, share: reports.append(message))
    assert again == results
    assert reports == ["done"]


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(small_run(), tmp_path, data=DATA)
    assert torch.equal(torch.rand(3), expected)


@pytest.fixture(scope="module")
def as_usual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("as usual")
    train(small_run(), folder, data=DATA)
    return weights(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"learning_rate": 0.001},
        {"weight_decay": 0.5},
        {"warmup_epochs": 0.0},
        {"label_smoothing": 0.0},
        {"mixup": 1.0},
        {"clip": 1e-3},
        {"augment": False},
        {"bfloat16": True},
        {"batch_size": 8},
        {"epochs": 1},
    ],
)
def test_every_setting_is_read(change, as_usual, tmp_path):
    train(small_run(**change), tmp_path, data=DATA)
    assert not torch.equal(as_usual, weights(tmp_path))


def test_the_learning_rate_grows_then_falls_along_half_a_cosine():
    settings = TrainSettings(epochs=10, warmup_epochs=2.0, learning_rate=0.1)
    rates = [settings.learning_rate_at(step, 4) for step in range(40)]
    assert rates[:8] == pytest.approx([0.1 * (i + 1) / 9 for i in range(8)])
    assert rates[8] == 0.1
    assert rates[8 + 16] == pytest.approx(0.05)
    assert rates[39] == pytest.approx(0.1 * math.sin(math.pi / 64) ** 2)
    assert TrainSettings(warmup_epochs=0.0).learning_rate_at(0, 4) == 2e-3


def test_decay_spares_biases_norms_positions_and_temperatures(tmp_path):
    """A huge decay alone, with a learning rate at which gradients do nothing."""
    quiet = {"learning_rate": 1e-9, "warmup_epochs": 0.0, "epochs": 1}
    for name, decay in (("none", 0.0), ("strong", 1e8)):
        train(small_run(weight_decay=decay, **quiet), tmp_path / name, data=DATA)
    none, strong = (load_network(tmp_path / name).state_dict() for name in ("none", "strong"))
    shrunk = {name for name in none if not torch.allclose(none[name], strong[name], rtol=1e-2, atol=1e-6)}
    assert shrunk == {name for name in none if name.endswith("weight") and "norm" not in name}


def test_evaluation_against_scikit_learn():
    torch.manual_seed(0)
    logits, labels = torch.randn(70, 12), torch.arange(70) % 12
    data = ImageTensors(logits.view(70, 1, 3, 4), labels, tuple("abcdefghijkl"))
    model = nn.Flatten().train()
    found = evaluate(model, data, batch_size=32)
    assert model.training
    scores = logits.numpy()
    for k in (1, 5):
        expected = top_k_accuracy_score(labels.numpy(), scores, k=k, labels=np.arange(12))
        assert found[f"top{k}"] == pytest.approx(expected)
    assert found["loss"] == pytest.approx(log_loss(labels.numpy(), logits.double().softmax(-1).numpy()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": 3}, "no field 'epoch'; there are data, epochs"),
        ({"epochs": 0}, "epochs must be an integer ≥ 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer ≥ 1, got 2.5"),
        ({"seed": -1}, "seed must be an integer ≥ 0, got -1"),
        ({"learning_rate": math.nan}, "learning_rate must be a number > 0, got nan"),
        ({"mixup": -0.1}, "mixup must be a number ≥ 0, got -0.1"),
        ({"label_smoothing": 1}, r"label_smoothing must be a number in \[0, 1\), got 1"),
        ({"augment": 1}, "augment must be true or false, got 1"),
        ({"data": ""}, "data must be a text, got ''"),
    ],
)
def test_a_wrong_setting_is_named(fields, message):
    with pytest.raises(ValueError, match=f"TrainSettings: {message}"):
        TrainSettings.from_dict(fields)


def test_a_run_refuses_the_folder_of_another(tmp_path):
    train(small_run(epochs=1), tmp_path, data=DATA)
    with pytest.raises(ValueError, match=r"of a run with training.epochs = 1, asked for 2; choose another"):
        train(small_run(epochs=2), tmp_path, data=DATA)
    with pytest.raises(ValueError, match=r"of a run with network.k = 2, asked for 1"):
        train(small_run({"k": 1}, epochs=1), tmp_path, data=DATA)
    (tmp_path / "state.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"state.safetensors is not the state of a run"):
        train(small_run(epochs=1), tmp_path, data=DATA)
    (tmp_path / "state.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"state.safetensors is not a whole safetensors file"):
        train(small_run(epochs=1), tmp_path, data=DATA)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"classes": 3}, "network.classes is 3, but halves has 2"),
        ({"channels": 3}, "network.channels is 3, but halves has 1"),
        ({"image_size": 16}, r"network.image_size is \(16, 16\), but halves has \(8, 8\)"),
    ],
)
def test_a_network_for_other_images_is_named_before_anything_is_written(network, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(small_run(network), tmp_path / "new", data=DATA)
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    bad = ImageTensors(torch.full((48, 1, 8, 8), math.inf), DATA[0].labels, DATA[0].classes)
    with pytest.raises(ValueError, match="the loss is nan in epoch 1, step 1; a smaller learning_rate"):
        train(small_run({"model": "vit"}, augment=False), tmp_path, data=(bad, DATA[1]))


@pytest.mark.parametrize("name", preset_names())
def test_presets_as_json(name, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(run_preset(name).to_dict()))
    assert RunConfig.from_json(tmp_path / "run.json") == run_preset(name)
    (tmp_path / "run.json").write_text('{"network": {}}')
    with pytest.raises(ValueError, match="must hold an object with 'network' and 'training'"):
        RunConfig.from_json(tmp_path / "run.json")
