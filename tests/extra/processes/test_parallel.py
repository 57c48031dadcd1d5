"""khot.parallel with 2 and 4 processes on gloo: as one process; and what happens when one of them dies."""

import time

import pytest

from strategies.processes import case_names, finished, run_cases, start

CASES = "strategies.sharded_cases"

DYING = """
import datetime, os, sys, time, torch
import torch.distributed as dist
from khot import parallel

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=20)
)
x = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
parallel.sigmoid_topk(x, 10)
if rank == 1:
    if sys.argv[3] == "dies":
        os._exit(7)
    time.sleep(60)  # is there, and does not answer
    os._exit(7)
began = time.monotonic()
try:
    parallel.sigmoid_topk(x, 10)
except RuntimeError as error:
    print("error after", time.monotonic() - began, type(error).__name__)
os._exit(0)  # the group is broken: nothing to say goodbye to
"""


@pytest.fixture(scope="module", params=[2, 4], ids=["2 processes", "4 processes"])
def found(request, tmp_path_factory):
    return run_cases(CASES, request.param, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("case", case_names(CASES))
def test_as_one_process(found, case):
    for rank, text in found[case].items():
        pytest.fail(f"in process {rank}:\n{text}")


@pytest.mark.parametrize("fate", ["dies", "sleeps"])
def test_a_process_that_dies_or_does_not_answer_is_an_error_and_no_hang(tmp_path, fate):
    began = time.monotonic()
    running = [start(["-c", DYING, rank, tmp_path / "store", fate]) for rank in range(2)]
    (code, out, err), (other, _, _) = finished(running, timeout=200)
    assert (code, other) == (0, 7), err
    assert out.startswith("error after "), err
    assert float(out.split()[2]) < 40
    assert time.monotonic() - began < 200
