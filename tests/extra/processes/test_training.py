"""Training by two processes: DDP and FSDP2 do what one process does, and a run that lost one goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from khot.files.tensors import read_tensors
from khot.vision import load_network
from strategies.processes import TESTS, case_names, finished, run_cases, start
from strategies.small_runs import small_run

CASES = "strategies.training_cases"
PATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_cases(CASES, 2, tmp_path_factory.mktemp("training"))


@pytest.mark.parametrize("case", case_names(CASES))
def test_twenty_steps_as_one_process(found, case):
    for rank, text in found[case].items():
        pytest.fail(f"in process {rank}:\n{text}")


def torchrun(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", *map(str, arguments)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process):
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err


def weights(folder):
    return torch.cat([tensor.flatten() for tensor in load_network(folder).state_dict().values()])


def children(pid):
    """The processes that torchrun started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Twenty steps of the training loop by one process."""
    folder = tmp_path_factory.mktemp("alone")
    ((code, _, err),) = finished([start(["-m", "strategies.training_loop", folder])])
    assert code == 0, err
    return folder


@pytest.mark.parametrize("sharded", [[], ["sharded"]], ids=["DDP", "FSDP2"])
def test_the_training_loop_under_torchrun(alone, tmp_path, sharded):
    ended(torchrun("strategies.training_loop", tmp_path, *sharded))
    ours, expected = (read_tensors(folder / "model.safetensors")[0] for folder in (tmp_path, alone))
    assert ours.keys() == expected.keys()
    assert {tensor.dtype for tensor in ours.values() if tensor.is_floating_point()} == {torch.float64}
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-5)
    ours, expected = (
        json.loads((folder / "results.json").read_text())["epochs"][0] for folder in (tmp_path, alone)
    )
    for name in ("train_loss", "test_loss", "top1"):
        assert abs(ours[name] - expected[name]) < 1e-5, name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds a process by /proc")
@pytest.mark.parametrize("sharded", [[], ["--sharded"]], ids=["DDP", "FSDP2"])
def test_one_of_two_is_killed_and_both_go_on(tmp_path, sharded):
    run = tmp_path / "run.json"
    config = small_run({"classes": 10}, data="digits", batch_size=64, epochs=3, mixup=0.3, checkpoint_steps=5)
    run.write_text(json.dumps(config.to_dict()))

    def started(folder):
        return torchrun("khot", "train", run, "--output", tmp_path / folder, *sharded)

    killed = started("killed")
    deadline = time.monotonic() + 240
    while not (tmp_path / "killed" / "state.safetensors").exists():
        assert time.monotonic() < deadline
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.005)
    os.kill(children(killed.pid)[-1], signal.SIGKILL)
    _, err = killed.communicate(timeout=300)
    assert killed.returncode != 0, err  # the other one ends too: nobody waits for ever
    assert not (tmp_path / "killed" / "results.json").exists()
    for folder in ("killed", "whole"):
        ended(started(folder))
    assert torch.equal(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
