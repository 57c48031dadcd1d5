"""Training by two processes: DDP and FSDP2 do what one process does, and a run that lost one goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from khot.vision import load_network
from strategies.processes import case_names, run_cases
from strategies.small_runs import small_run

CASES = "strategies.training_cases"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_cases(CASES, 2, tmp_path_factory.mktemp("training"))


@pytest.mark.parametrize("case", case_names(CASES))
def test_twenty_steps_as_one_process(found, case):
    for rank, text in found[case].items():
        pytest.fail(f"in process {rank}:\n{text}")


def torchrun(run, output, **options):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
    ]
    command += ["--rdzv-endpoint", "127.0.0.1:0", "-m", "khot", "train", str(run), "--output", str(output)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def weights(folder):
    return torch.cat([tensor.flatten() for tensor in load_network(folder).state_dict().values()])


def children(pid):
    """The processes that torchrun started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds a process by /proc")
def test_one_of_two_is_killed_and_both_go_on(tmp_path):
    run = tmp_path / "run.json"
    config = small_run({"classes": 10}, data="digits", batch_size=64, epochs=3, mixup=0.3, checkpoint_steps=5)
    run.write_text(json.dumps(config.to_dict()))
    killed = torchrun(run, tmp_path / "killed")
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
        process = torchrun(run, tmp_path / folder)
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
    assert torch.equal(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
