"""Wrong arguments of the whole package are refused by name."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from khot.vision import NetworkConfig, from_config, load_network, preset, save_network
from khot.vision.data import FolderImages, ImageTensors, load
from khot.vision.training import TrainSettings, run_preset, train

IMAGES, LABELS = torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64)


def network():
    return from_config(preset("digits", model="vit", depth=1))


WRONG = [
    (lambda: save_network(nn.Linear(2, 2), "out"), "model must be a network of khot.vision, got Linear"),
    (lambda: save_network(network(), 3), "save_network: folder must be a path, got 3"),
    (
        lambda: save_network(network(), "out", {"a": 3}),
        r"save_network: weights\['a'\] must be a torch.Tensor, got int",
    ),
    (lambda: load_network(None), "load_network: folder must be a path, got None"),
    (lambda: network()([[0.0]]), "PatchEmbed: images must be a torch.Tensor, got list"),
    (
        lambda: network()(IMAGES.long()),
        "PatchEmbed: images must have a floating-point dtype, got torch.int64",
    ),
    (lambda: ImageTensors(None, LABELS, ("a",)), "ImageTensors: images must be a torch.Tensor, got NoneType"),
    (lambda: ImageTensors(IMAGES, [0, 0], ("a",)), "ImageTensors: labels must be a torch.Tensor, got list"),
    (
        lambda: ImageTensors(IMAGES, LABELS.float(), ("a",)),
        "ImageTensors: labels must be int64, got torch.fl",
    ),
    (lambda: load(None), "data.load: name must be a path, got None"),
    (lambda: load("digits", data_dir=3), "data.load: data_dir must be a path, got 3"),
    (lambda: load("digit-pairs", count="9"), "data.load: count must be an integer, got '9'"),
    (lambda: load("digit-pairs", seed=0.5), "data.load: seed must be an integer, got 0.5"),
    (lambda: FolderImages(None), "FolderImages: folder must be a path, got None"),
    (lambda: train({}, "out"), "train: config must be a RunConfig, got dict"),
    (lambda: train(run_preset("digits"), None), "train: output must be a path, got None"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_named(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_tied_weights_are_saved(tmp_path):
    """safetensors itself refuses tensors that share memory."""
    model = network()
    tied = torch.randn(48)
    weights = {**model.state_dict(), "norm.weight": tied, "norm.bias": tied}
    save_network(model, tmp_path, weights)
    again = load_network(tmp_path)
    assert torch.equal(again.norm.weight, tied)
    assert torch.equal(again.norm.bias, tied)


def test_numbers_of_numpy_are_settings_that_json_holds():
    config = NetworkConfig(width=np.int64(16), image_size=np.int32(64), dropout=np.float32(0.5))
    assert json.loads(json.dumps(config.to_dict()))["width"] == 16
    settings = TrainSettings(epochs=np.int64(3), learning_rate=np.float32(0.5))
    assert json.loads(json.dumps([settings.epochs, settings.learning_rate])) == [3, 0.5]
