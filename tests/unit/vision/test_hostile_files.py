"""Files of networks and runs that are damaged or made to harm: a clear error, and nothing is loaded."""

import json
import os
import shutil
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from khot.files.tensors import read_tensors, write_tensors
from khot.vision import NetworkConfig, from_config, load_network, preset, save_network
from khot.vision.checkpoints import _least_parameters, load_weights
from khot.vision.data import FolderImages
from khot.vision.training import RunConfig, train
from strategies.small_runs import bright_halves, small_run

DATA = (bright_halves(), bright_halves(20, seed=1))


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save_network(from_config(preset("digits", model="vit", depth=1, width=16)), tmp_path)
    return tmp_path


def refused(folder, message):
    with pytest.raises(ValueError, match=message):
        load_network(folder)


def edited(folder, **fields):
    """Both the file and the copy of it in the weights say so, as one made to harm would."""
    tensors, about = read_tensors(folder / "model.safetensors")
    config = {**about["config"], **fields}
    write_tensors(
        {name: tensor.clone() for name, tensor in tensors.items()},
        {"config": config},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 10**9}, "asks for 1000000000 blocks, .* has [0-9]+ tensors"),
        ({"width": 2**20}, "asks for [0-9]+ parameters or more, .* has [0-9]+"),
        ({"width": 2**40}, "asks for"),
        ({"classes": 10**12}, "asks for"),
        ({"mlp_ratio": 1e12}, "asks for"),
        ({"mlp_ratio": 2**63}, "asks for"),
        ({"image_size": [2 * 10**9, 2 * 10**9]}, "asks for"),
        ({"channels": 2**62}, "asks for"),
        ({"width": "16"}, "width must be a positive integer, got '16'"),
        ({"width": None}, "width must be a positive integer, got None"),
        ({"method": ["soft_rank"]}, "unknown method"),
        ({"method": "../../etc/passwd"}, "unknown method"),
        ({"model": {"a": 1}}, "model must be"),
        ({"image_size": [8, 8, 8]}, "image_size must be one or two positive integers"),
        ({"temperature": True}, "temperature must be a number"),
    ],
)
def test_a_configuration_that_asks_for_too_much_takes_no_memory(folder, fields, message):
    edited(folder, **fields)
    refused(folder, message)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[]", '{"width": 1e999}', '{"width": NaN}', "\ufeff{}", ""]
)
def test_a_configuration_that_is_no_object(folder, text):
    (folder / "config.json").write_text(text)
    refused(folder, r"NetworkConfig: .*config\.json (is not JSON|must hold an object)")


def header(length, text=b""):
    return struct.pack("<Q", length) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        header(2**63, b"{}"),
        header(2**40, b"{}"),
        header(2, b"[]"),
        header(100, b"{}"),
        header(30, b'{"a": "b"' + b" " * 21),
        header(70, b'{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}    '),
        header(64, b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[8,16]}}         ') + bytes(16),
        header(64, b'{"a":{"dtype":"F99","shape":[4],"data_offsets":[0,16]}}         ') + bytes(16),
        header(64, b'{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}        ') + bytes(16),
        header(20_000, b'{"__metadata__":{"a":' + b"[" * 19_979),
    ],
    ids=range(12),
)
def test_weights_whose_header_lies(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, r"model\.safetensors is not a whole safetensors file")


def test_any_truncation_and_any_byte_more_is_noticed(folder):
    whole = (folder / "model.safetensors").read_bytes()
    for cut in (1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:cut])
        refused(folder, "is not a whole safetensors file")
    (folder / "model.safetensors").write_bytes(whole + b"\x00")
    refused(folder, "is not a whole safetensors file")


def test_tensors_of_a_wrong_type_or_shape_change_nothing(folder):
    model = from_config(preset("digits", model="vit", depth=1, width=16))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = load_file(folder / "model.safetensors")
    for change, message in (
        ({"head.weight": torch.zeros(10, 16, dtype=torch.int64)}, "head.weight has the type torch.int64"),
        ({"head.weight": torch.zeros(10, 16, dtype=torch.bool)}, "head.weight has the type torch.bool"),
        ({"head.bias": torch.zeros(1)}, r"head.bias has the shape \(1,\)"),
        ({"head.bias": torch.zeros(())}, r"head.bias has the shape \(\)"),
        (
            {"../head.bias": torch.zeros(10)},
            "has ../head.bias, which the network of this configuration lacks",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load_weights(model, {**tensors, **change}, "somewhere")
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
        save_file({**tensors, **change}, folder / "model.safetensors")
        refused(folder, message)
    load_weights(model, {name: tensor.double() for name, tensor in tensors.items()}, "another precision")


def test_metadata_that_is_too_deep_is_no_configuration(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "model.safetensors", metadata={"config": "[" * 100_000})
    assert load_network(folder).config.width == 16


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """A run after its first of two epochs."""
    folder, config = tmp_path_factory.mktemp("run"), small_run(epochs=2)

    def stop(message, share):
        if share > 0.5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(config, folder, data=DATA, report=stop)
    return folder


@pytest.fixture
def state(stopped_run, tmp_path):
    shutil.copytree(stopped_run, tmp_path, dirs_exist_ok=True)
    return tmp_path / "state.safetensors"


def without(name):
    return lambda tensors, about: tensors.pop(name)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("model.head.bias"), "lacks head.bias"),
        (without("optimizer.0.exp_avg"), r"lacks optimizer\.0\.exp_avg"),
        (without("rng.0"), "has no random state for this process"),
        (lambda t, a: t.update({"rng.0": torch.zeros(3, dtype=torch.uint8)}), "has no random state"),
        (lambda t, a: t.update({"rng.0": torch.zeros(5056)}), "has no random state"),
        (
            lambda t, a: t.update({"rng.0": torch.full((5056,), 255, dtype=torch.uint8)}),
            "has no random state",
        ),
        (lambda t, a: t.update({"other": torch.zeros(3)}), "has other, which the state of a run lacks"),
        (lambda t, a: t.update({"model.more": torch.zeros(3)}), "has more, which"),
        (
            lambda t, a: t.update({"optimizer.99.step": torch.zeros(())}),
            r"has optimizer\.99\.step, which is of no",
        ),
        (
            lambda t, a: t.update({"optimizer.x.step": torch.zeros(())}),
            r"has optimizer\.x\.step, which is of no",
        ),
        (lambda t, a: t.update({"optimizer.-1.step": torch.zeros(())}), r"has optimizer\.-1\.step, which"),
        (lambda t, a: t.update({"optimizer.0.exp_avg": torch.zeros(3)}), r"optimizer\.0\.exp_avg is torch"),
        (lambda t, a: a.update(position=3), "a position that no run can have: 3"),
        (lambda t, a: a.update(position={"epoch": 1}), "a position that no run can have"),
        (lambda t, a: a["position"].update(epoch=-1), "a position that no run can have"),
        (lambda t, a: a["position"].update(epoch=99), "a position that no run can have"),
        (lambda t, a: a["position"].update(step="1"), "a position that no run can have"),
        (lambda t, a: a["position"].update(history=[{}]), "a position that no run can have"),
        (lambda t, a: a["position"].update(more=1), "a position that no run can have"),
        (lambda t, a: a.update(config=[1]), "is not the state of a run"),
        (lambda t, a: a["config"].update(network=3), "is not the state of a run"),
        (lambda t, a: a.pop("processes"), "is not the state of a run"),
        (lambda t, a: a.update(processes=2), "was written by 2 processes, there are 1 now"),
    ],
)
def test_the_state_of_no_run_is_refused(state, edit, message):
    tensors, about = read_tensors(state)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    edit(tensors, about)
    write_tensors(tensors, about, state)
    before = {path: path.read_bytes() for path in state.parent.iterdir()}
    with pytest.raises(ValueError, match=message):
        train(small_run(epochs=2), state.parent, data=DATA)
    assert {path: path.read_bytes() for path in state.parent.iterdir()} == before


@pytest.mark.parametrize("failing", ["save_network", "_write_csv", "save_state"])
def test_a_disk_that_is_full_at_the_last_epoch_loses_nothing(failing, tmp_path, monkeypatch):
    config = small_run(epochs=2)
    train(config, tmp_path / "whole", data=DATA)
    calls = 0

    def full(*arguments, original):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        return original(*arguments)

    from khot.vision.training import loop

    with monkeypatch.context() as patch:
        original = getattr(loop, failing)
        patch.setattr(loop, failing, lambda *arguments: full(*arguments, original=original))
        with pytest.raises(OSError, match="No space left"):
            train(config, tmp_path / "full", data=DATA)
    train(config, tmp_path / "full", data=DATA)
    whole, resumed = (load_network(tmp_path / name).state_dict() for name in ("whole", "full"))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    assert sorted(os.listdir(tmp_path / "whole")) == sorted(os.listdir(tmp_path / "full"))


@pytest.mark.parametrize(
    "text", ['{"network": 3, "training": {}}', '{"network": {}, "training": [1]}', "[" * 10**5]
)
def test_the_configuration_of_a_run_is_checked(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"must be an object|is not JSON"):
        RunConfig.from_json(tmp_path / "run.json")


def test_pictures_that_are_none_are_named(tmp_path):
    """Cut, foreign, and one that claims to be huge."""
    from PIL import Image

    (tmp_path / "train" / "a").mkdir(parents=True)
    file = tmp_path / "train" / "a" / "picture.png"
    Image.effect_noise((32, 32), 50).convert("RGB").save(file)
    data = FolderImages(tmp_path, size=4)
    assert data[0][0].shape == (3, 4, 4)
    whole = file.read_bytes()
    huge = whole[:16] + struct.pack(">II", 60_000, 60_000) + whole[24:]
    for content in (whole[:200], whole[:20], b"", b"<svg/>", huge):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"data\.load: cannot read .*picture\.png"):
            data[0]


@pytest.mark.parametrize("model", ["topk_attention", "topk_dynamic", "vit"])
def test_no_network_has_fewer_parameters_than_its_largest_matrices(model):
    """Or its own file would be refused."""
    small = {"image_size": 8, "channels": 1, "classes": 2, "patch_size": 4, "width": 8, "heads": 2, "k": 2}
    for changes in (
        {},
        {"depth": 3},
        {"expansion": 3},
        {"mlp_ratio": 8.0},
        {"patch_size": 2},
        {"classes": 99},
    ):
        config = NetworkConfig.from_dict({"model": model, "depth": 1, "mlp_ratio": 6.0, **small, **changes})
        present = sum(tensor.numel() for tensor in from_config(config).state_dict().values())
        assert present / 5 < _least_parameters(config) <= present, changes
