"""In a process group all take one temperature, or all fail: two processes with gloo."""

import subprocess
import sys

import pytest

PROCESS = """
import sys, torch
from torch import distributed
from khot.nn import TopK

rank, store, case = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
x = torch.randn(16, 9, generator=torch.Generator().manual_seed(0))
scores = x * (1.0, 100.0)[rank]
if case == "equal" and rank == 1:
    scores = torch.zeros(16, 9)
if case == "short" and rank == 1:
    scores = x[:, :2]
layer = TopK(3, calibrate=0.9, at_most=True)
try:
    layer(scores)
    alone = TopK(3)
    distributed.destroy_process_group()
    alone.calibrate_(x, weight_on_topk=0.9)
    print(layer.temperature.item() / alone.temperature.item())
except ValueError as error:
    print("error", error)
"""


def both(tmp_path, case):
    command = [sys.executable, "-c", PROCESS]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), case],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], results
    return [out.strip() for out, _ in results]


def test_all_take_the_geometric_mean(tmp_path):
    """Temperatures 1 and 100 times that of x alone: 10 times is the mean, in both."""
    first, second = both(tmp_path, "scaled")
    assert first == second
    assert float(first) == pytest.approx(10, rel=1e-4)


def test_scores_that_are_taken_whole_have_no_say(tmp_path):
    first, second = both(tmp_path, "short")
    assert first == second
    assert float(first) == pytest.approx(1, rel=1e-6)


def test_all_fail_if_one_does(tmp_path):
    """A process that raised alone would leave the other waiting."""
    first, second = both(tmp_path, "equal")
    assert first.startswith("error TopK.calibrate_: ")
    assert "scores of another process" in first
    assert second.startswith("error TopK.calibrate_: ")
    assert "give temperature=" in second
