"""A network comes back from disk as it was, or not at all."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from khot.vision import from_config, load_network, preset, save_network


@pytest.fixture(params=["topk_attention", "topk_dynamic", "vit"])
def network(request):
    torch.manual_seed(0)
    return from_config(preset("digits", model=request.param, depth=1)).eval()


def test_round_trip(network, tmp_path):
    save_network(network, tmp_path / "new" / "folder")
    again = load_network(tmp_path / "new" / "folder")
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["config.json", "model.safetensors"]
    assert type(again) is type(network)
    assert again.config == network.config
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(again(images), network(images))
    assert not again.training


def test_a_changed_configuration_names_the_field(network, tmp_path):
    save_network(network, tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    for field, value, message in (
        ("k", 5, "has k = 5, the weights were saved with 4"),
        ("width", 32, "has width = 32, the weights were saved with 64"),
        ("extra", 1, "no field 'extra'"),
        ("heads", 3, "heads must divide"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**fields, field: value}))
        with pytest.raises(ValueError, match=message):
            load_network(tmp_path)


def test_weights_that_do_not_fit_are_named(network, tmp_path):
    save_network(network, tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    save_file({**tensors, "head.weight": torch.zeros(3, 64)}, weights)
    with pytest.raises(ValueError, match=r"head.weight has the shape \(3, 64\), .* asks for \(10, 64\)"):
        load_network(tmp_path)
    save_file({name: tensor for name, tensor in tensors.items() if name != "norm.bias"}, weights)
    with pytest.raises(ValueError, match=r"lacks norm.bias"):
        load_network(tmp_path)
    save_file({**tensors, "more": torch.zeros(1)}, weights, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="has more, which the network of this configuration lacks"):
        load_network(tmp_path)


class Unwelcome:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def test_nothing_is_unpickled(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_network(network, tmp_path)
    for content in (pickle.dumps(Unwelcome()), b"", (tmp_path / "model.safetensors").read_bytes()[:-100]):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"model.safetensors is not a whole safetensors file"):
            load_network(tmp_path)
    torch.save({"a": Unwelcome()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        load_network(tmp_path)
    assert not (tmp_path / "unpickled").exists()


def test_a_write_that_fails_leaves_the_old_file(network, tmp_path, monkeypatch):
    save_network(network, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def interrupted(*args, **kwargs):
        args[1].write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("safetensors.torch.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_network(network, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    assert load_network(tmp_path).config == network.config
