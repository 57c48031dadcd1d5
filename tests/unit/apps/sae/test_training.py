"""Training on stored activations: it learns, ends with the same bits when stopped, and reads every
setting."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from khot.apps.sae import TrainSettings, collect_activations, core_metrics, train
from khot.apps.sae.training import standardisation
from strategies.quick_run import costly

SMALL = TrainSettings(
    num_latents=24, k=3, steps=60, batch_size=64, learning_rate=1e-2, dead_after=500, checkpoint_steps=25
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Sums of three of twenty directions, around a mean."""
    generator = torch.Generator().manual_seed(0)
    directions = nn.functional.normalize(torch.randn(20, 10, generator=generator), dim=-1)
    chosen = torch.stack([torch.randperm(20, generator=generator)[:3] for _ in range(2000)])
    codes = torch.zeros(2000, 20).scatter(1, chosen, 1 + torch.rand(2000, 3, generator=generator))
    network = nn.Sequential(nn.Linear(20, 10))
    with torch.no_grad():
        network[0].weight.copy_(5 * directions.T)
        network[0].bias.fill_(7.0)
    return collect_activations(network, "0", codes.view(20, 100, 20), tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("activation", [costly("topk"), costly("batch_topk"), "sigmoid_topk"])
def test_it_learns_and_takes_activations_as_they_are(store, activation):
    settings = dataclasses.replace(SMALL, activation=activation, steps=300)
    autoencoder, history = train(store, settings)
    assert history["fvu"][-1] < 0.5 * history["fvu"][0]
    x = store.read(range(2000))
    found = core_metrics(autoencoder, [x])
    assert 1 - found["explained_variance"] < 0.25
    assert found["l0"] == pytest.approx(3, abs=0.05 if activation == "batch_topk" else 1e-9)
    torch.testing.assert_close(autoencoder.W_dec.norm(dim=-1), torch.ones(24))
    assert not autoencoder.training


@pytest.mark.parametrize("activation", ["topk", "batch_topk", "sigmoid_topk"])
def test_a_stopped_run_ends_with_the_same_bits(store, activation, tmp_path):
    settings = dataclasses.replace(SMALL, activation=activation, k_start=2.0)
    whole, history = train(store, settings)
    train(store, settings, tmp_path, stop_after=20)
    train(store, settings, tmp_path, stop_after=7)
    parts, resumed = train(store, settings, tmp_path)
    for name, tensor in whole.state_dict().items():
        assert name == "_extra_state" or torch.equal(tensor, parts.state_dict()[name]), name
    assert {**history, "seconds": 0} == {**resumed, "seconds": 0}
    again, _ = train(store, settings, tmp_path)
    assert torch.equal(again.W_dec, whole.W_dec)


def test_a_state_of_another_run_is_refused(store, tmp_path):
    train(store, SMALL, tmp_path, stop_after=2)
    with pytest.raises(ValueError, match=r"is of a run with k = 3, asked for 4; choose another folder"):
        train(store, dataclasses.replace(SMALL, k=4), tmp_path)
    state = tmp_path / "state.safetensors"
    state.write_bytes(state.read_bytes()[:500])
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        train(store, SMALL, tmp_path)


CHANGES = {
    "num_latents": 25,
    "k": 4,
    "activation": "sigmoid_topk",
    "prefixes": (6,),
    "k_start": 2.0,
    "temperature": (2.0, 0.5),
    "candidates": 5,
    "steps": 9,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "warmup": 0.5,
    "decay": 0.6,
    "auxk": 0.5,
    "dead_after": 65,
    "clip": 0.01,
    "unit_decoder": False,
    "seed": 1,
}


def test_every_setting_changes_something(store):
    assert {field.name for field in dataclasses.fields(TrainSettings)} - set(CHANGES) == {"checkpoint_steps"}
    base = dataclasses.replace(SMALL, steps=8, dead_after=64, num_latents=150, k=2)
    soft = dataclasses.replace(base, activation="sigmoid_topk")
    weights = {start: train(store, start)[0].W_enc for start in (base, soft)}
    for name, value in CHANGES.items():
        start = soft if name in ("temperature", "candidates") else base
        found = train(store, dataclasses.replace(start, **{name: value}))[0].W_enc
        same = found.shape == weights[start].shape and torch.equal(found, weights[start])
        assert not same, name


def test_the_learning_rate_rises_stays_and_falls_and_annealing_ends_where_it_falls():
    settings = TrainSettings(steps=100, warmup=0.1, decay=0.4, learning_rate=2.0)
    rates = [settings.learning_rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[10:60] == [2.0] * 50
    assert rates[99] == pytest.approx(2 * 0.01 / 0.4)
    assert rates[80] == pytest.approx(1.0)
    assert settings.progress_at(30) == pytest.approx(0.5)
    assert settings.progress_at(60) == settings.progress_at(99) == 1.0


def test_standardised_activations_have_mean_0_and_the_squared_norm_d(store):
    mean, scale = standardisation(store)
    x = (store.read(range(2000)) - mean) * scale
    assert x.mean(0).abs().max() < 1e-4
    assert x.square().sum(-1).mean().item() == pytest.approx(10, rel=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "k must be an integer ≥ 1, got 0"),
        ({"steps": 2.5}, "steps must be an integer ≥ 1, got 2.5"),
        ({"activation": "jumprelu"}, "activation must be topk, batch_topk or sigmoid_topk"),
        ({"learning_rate": 0.0}, "learning_rate must be a number ≥ 0"),
        ({"clip": math.nan}, "clip must be a number ≥ 0"),
        ({"warmup": 0.6, "decay": 0.6}, "warmup + decay must be at most 1"),
        ({"k": 40, "num_latents": 30}, "k must be at most num_latents = 30, got 40"),
        ({"activation": "sigmoid_topk", "candidates": 3}, "candidates must be an integer in 32"),
        ({"step": 3}, "no field 'step'; there are num_latents"),
        ({"learning_rate": "2"}, "learning_rate must be a number ≥ 0 (learning_rate > 0), got '2'"),
        ({"clip": True}, "clip must be a number ≥ 0 (learning_rate > 0), got True"),
        ({"temperature": 1.0}, "temperature must be two numbers > 0, at first and at last, got 1.0"),
        ({"prefixes": 3}, "prefixes must be rising integers in 1 … 4096, the last 4096, got 3"),
        ({"prefixes": "34"}, "prefixes must be rising integers in 1 … 4096, the last 4096, got '34'"),
        ({"k_start": "2"}, "k_start must be a number ≥ 1, got '2'"),
    ],
)
def test_wrong_settings_are_refused_by_name(fields, message):
    with pytest.raises(ValueError) as error:
        TrainSettings.from_dict(fields)
    assert message in str(error.value)


def test_an_output_that_cannot_be_written_is_noticed_before_the_first_step(store, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match="train: output must be a folder that can be written to"):
        train(store, SMALL, tmp_path / "file", report=lambda *_: pytest.fail("it trained"))


def test_integers_of_numpy_are_settings_that_json_holds():
    settings = TrainSettings(
        num_latents=np.int64(24),
        k=np.int32(3),
        prefixes=[np.int64(8)],
        k_start=np.float32(2),
        clip=np.float32(1),
    )
    assert json.loads(json.dumps(settings.autoencoder(4).options.k_start)) == 2
    assert json.loads(json.dumps(settings.clip)) == 1
    assert json.loads(json.dumps(dataclasses.asdict(settings.autoencoder(4).options)))["prefixes"] == [8, 24]


def test_numbers_of_numpy_are_settings_that_json_can_hold(tmp_path):
    """Before the training, not after it."""
    settings = TrainSettings(
        num_latents=np.int64(16),
        k=2,
        k_start=np.float32(2.0),
        prefixes=(np.int64(4), np.int64(16)),
        temperature=(np.float32(1.0), np.float32(0.125)),
    )
    again = TrainSettings.from_dict(json.loads(json.dumps(dataclasses.asdict(settings))))
    assert again == settings
    batches = [torch.randn(4, 6)]
    counts = {"skip_positions": np.int64(0), "batches_per_shard": np.int64(2), "largest_norm": np.float32(9)}
    collect_activations(nn.Sequential(nn.Identity()), "0", batches, tmp_path / "store", **counts)
    for wrong in ({"about": {"a": np.int64(3)}}, {"largest_norm": math.inf}):
        with pytest.raises(ValueError, match=f"collect_activations: {next(iter(wrong))} must be"):
            collect_activations(nn.Sequential(nn.Identity()), "0", batches, tmp_path / "other", **wrong)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("k_start", [4.2, 5.2, 7.9])
def test_the_candidates_are_enough_for_the_start(k_start):
    settings = TrainSettings(num_latents=64, k=1, k_start=k_start)
    assert settings.autoencoder(16).options.candidates >= k_start
