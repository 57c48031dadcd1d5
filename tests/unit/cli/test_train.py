"""`khot train`: kills, several processes, folders of pictures, wrong arguments."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from khot.cli.train import app
from khot.vision import load_network
from strategies.small_runs import small_run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = {"patch_size": 4, "width": 8, "heads": 2, "depth": 1, "k": 2}


def call(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "250"})
    return result.exit_code, result.output


def config_file(folder, **training):
    run = small_run({"classes": 10}, **{"data": "digits", "batch_size": 64, **training})
    path = folder / "run.json"
    path.write_text(json.dumps(run.to_dict()))
    return path


def weights(folder) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in load_network(folder).state_dict().values()])


def position(folder) -> dict:
    with safe_open(folder / "state.safetensors", "pt") as file:
        return json.loads(file.metadata()["position"])


@pytest.mark.full
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    run = config_file(tmp_path, epochs=3, mixup=0.3, checkpoint_steps=5)
    command = [sys.executable, "-m", "khot", "train", str(run), "--threads", "1", "--output"]
    killed = subprocess.Popen([*command, str(tmp_path / "killed")], env=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "state.safetensors").exists():
        assert time.monotonic() < deadline
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    at = position(tmp_path / "killed")
    assert at["epoch"] < 3
    assert (at["epoch"], at["step"]) != (0, 0)
    for folder in ("killed", "whole"):
        code, text = call(run, "--threads", 1, "--output", tmp_path / folder)  # as many as were killed
        assert code == 0, text
    assert torch.equal(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


@pytest.mark.full
def test_two_processes_do_what_one_does(tmp_path):
    """Same batches, gradients averaged: the same weights up to rounding, if there is no noise."""
    run = config_file(tmp_path, epochs=1, augment=False, checkpoint_steps=10)
    arguments = ["--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "0"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *arguments, "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "127.0.0.1:0"]
    done = subprocess.run(
        [*torchrun, "-m", "khot", "train", str(run), "--output", str(tmp_path / "two")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("top-1") == 1
    assert done.stderr.count("khot train: 100%, done") == 1
    code, text = call(run, "--output", tmp_path / "one")
    assert code == 0, text
    torch.testing.assert_close(weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=1e-3, atol=1e-4)
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "two"))
    assert two["epochs"][0]["train_loss"] == pytest.approx(one["epochs"][0]["train_loss"], rel=1e-4)
    assert two["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    code, text = call(run, "--output", tmp_path / "two")
    assert code == 1
    assert "was written by 2 processes, there are 1 now" in text


def test_a_folder_of_pictures(tmp_path):
    from PIL import Image

    for half in ("train", "val"):
        for name, colour in (("dark", 10), ("grey", 128), ("light", 240)):
            folder = tmp_path / "pictures" / half / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (40 + i, 36), (colour + i,) * 3).save(folder / f"{i}.jpg")
    preset = ["imagenet-tiny", "--data", "pictures", "--data-dir", tmp_path, "--epochs", 1, "--batch-size", 4]
    run = tmp_path / "run.json"
    network = {**SMALL, "image_size": 32, "patch_size": 16, "classes": 3}
    run.write_text(
        json.dumps({"network": network, "training": {"data": "pictures", "epochs": 6, "batch_size": 4}})
    )
    code, text = call(run, "--data-dir", tmp_path, "--output", tmp_path / "out", "--learning-rate", 0.01)
    assert code == 0, text
    lines = [line for line in text.splitlines() if line.startswith("khot train: ")]
    assert "epoch 1 of 6, loss" in lines[0]  # there is no terminal here
    assert lines[-1] == "khot train: 100%, done"
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["network"]["classes"] == 3
    assert results["training"]["learning_rate"] == 0.01
    assert results["epochs"][-1]["train_loss"] < results["epochs"][0]["train_loss"]
    code, text = call(*preset, "--k", 500)
    assert code == 2
    assert "k must be at most the 196 patches, got 500" in text


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def test_a_preset_takes_its_shape_from_the_data_and_a_file_is_held_to_its_own(tmp_path):
    (tmp_path / "wide").mkdir()
    for half in ("train", "t10k"):
        write_idx(tmp_path / "wide" / f"{half}-images-idx3-ubyte", np.arange(12 * 8 * 16).reshape(12, 8, 16))
        write_idx(tmp_path / "wide" / f"{half}-labels-idx1-ubyte", np.arange(12))
    wide = ["--data", tmp_path / "wide", "--epochs", 1]
    code, text = call("digits", *wide, "--output", tmp_path / "out")
    assert code == 0, text
    assert "top-5" in text
    network = load_network(tmp_path / "out").config
    assert (network.image_size, network.channels, network.classes) == ((8, 16), 1, 12)
    code, text = call(config_file(tmp_path), *wide, "--output", tmp_path / "no")
    assert code == 1
    assert f"network.image_size is (8, 8), but {tmp_path}/wide has (8, 16)" in text


def test_wrong_arguments_are_named(tmp_path):
    for arguments, wanted, message in (
        (["digit"], 2, "'digit' is no file and no preset; presets are digits, mnist, imagenet-tiny"),
        (["digits", "--model", "resnet"], 2, "model must be 'topk_attention', 'topk_dynamic' or 'vit'"),
        (["digits", "--epochs", 0], 2, "epochs must be an integer ≥ 1, got 0"),
        (["digits", "--k", 0], 2, "k must be a positive integer, got 0"),
        (["mnist", "--data-dir", tmp_path], 1, f"{tmp_path}/mnist"),
        (["digits", "--method", "gumbel"], 2, "method must have rows and no noise"),
        (["digits", "--method", "nope"], 2, "'nope'"),
        (["digits", "--device", "abacus"], 2, "device 'abacus' cannot be used"),
    ):
        code, text = call(*arguments, "--output", tmp_path / "out")
        assert code == wanted
        assert message in text
        assert text.startswith("khot: ")
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_fails_before_training(tmp_path, monkeypatch):
    from khot.vision.training import loop, run_preset, train

    monkeypatch.setattr(loop, "load_data", lambda *_: pytest.fail("data were loaded"))
    (tmp_path / "file").write_text("kept")
    for output in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nope"):
        code, text = call("digits", "--output", output)
        assert code == 2
        assert f"train: output must be a folder that can be written to, got '{output}'" in text
        with pytest.raises(OSError, match="train: output must be a folder that can be written to"):
            train(run_preset("digits"), output, report=lambda *_: pytest.fail("it trained"))
    assert (tmp_path / "file").read_text() == "kept"


def test_without_safetensors_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    code, text = call("digits", "--output", tmp_path / "out")
    assert code == 1
    assert text == "khot: khot.vision: checkpoints need safetensors: pip install safetensors\n"
    assert not (tmp_path / "out").exists()
