"""khot.parallel with 2 and 4 processes on gloo: as one process; and what happens when one of them dies."""

import json
import re
import time

import pytest

from strategies.processes import TESTS, case_names, finished, run_cases, start

CASES = "strategies.sharded_cases"

ERRORS = "strategies.sharded_errors"

DYING = """
import datetime, os, sys, time, torch
import torch.distributed as dist
from khot import parallel
from khot.apps.moe import RoutingStatistics, load_balance_loss
from strategies.sharded_errors import INDICES, functions

rank, store, fate = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=10)
)
x = torch.randn(2, 1000, generator=torch.Generator().manual_seed(rank))
learning = x.clone().requires_grad_()
y = parallel.sigmoid_topk(learning, 10)
calls = dict(functions())
if rank == 1:
    if fate == "sleeps":
        time.sleep(25)  # is there, and does not answer
    os._exit(7)
found = []


def fails(name, call):
    began = time.monotonic()
    try:
        call()
    except RuntimeError:
        found.append((name, time.monotonic() - began))


fails("backward", lambda: y.sum().backward())
if fate == "dies":
    for name, call in calls.items():
        fails(name, lambda: call(x, 3))
    fails("expert_loads", lambda: parallel.expert_loads(INDICES, 4))
    fails("statistics", lambda: RoutingStatistics(4, kind="global").update(INDICES))
    fails("loss", lambda: load_balance_loss(torch.zeros(2, 4), INDICES, "global"))
print(len(found), max(seconds for _, seconds in found), len(calls))
os._exit(0)  # the group is broken: nothing to say goodbye to
"""


@pytest.fixture(scope="module", params=[2, 4], ids=["2 processes", "4 processes"])
def found(request, tmp_path_factory):
    return run_cases(CASES, request.param, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("case", case_names(CASES))
def test_as_one_process(found, case):
    for rank, text in found[case].items():
        pytest.fail(f"in process {rank}:\n{text}")


@pytest.fixture(scope="module", params=[2, 4], ids=["2 processes", "4 processes"])
def errors(request, tmp_path_factory):
    return run_cases(ERRORS, request.param, tmp_path_factory.mktemp("errors"))


@pytest.mark.parametrize("case", case_names(ERRORS))
def test_mistakes_and_odd_calls(errors, case):
    for rank, text in errors[case].items():
        pytest.fail(f"in process {rank}:\n{text}")


@pytest.mark.parametrize("fate", ["dies", "sleeps"])
def test_a_process_that_dies_or_does_not_answer_is_an_error_and_no_hang(tmp_path, fate):
    began = time.monotonic()
    running = [start(["-c", DYING, rank, tmp_path / "store", fate]) for rank in range(2)]
    (code, out, err), (other, _, _) = finished(running, timeout=200)
    assert (code, other) == (0, 7), err
    errors, seconds, calls = (float(text) for text in out.split())
    assert errors == (calls + 4 if fate == "dies" else 1), (out, err)
    assert seconds < 30
    assert time.monotonic() - began < 200


def test_the_example_of_the_page(tmp_path):
    text = (TESTS.parent / "docs" / "parallel.md").read_text("utf-8")
    (example,) = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "init_process" in block
    ]
    (tmp_path / "rows.py").write_text(example, "utf-8")
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    logs = ["--log-dir", tmp_path / "logs", "--redirects", "1"]  # a file each: lines cannot be mixed up
    running = start([*command, *logs, "--rdzv-endpoint", "127.0.0.1:0", tmp_path / "rows.py"])
    ((code, _, err),) = finished([running])
    assert code == 0, err
    files = sorted((tmp_path / "logs").rglob("stdout.log"))
    lines = [file.read_text("utf-8") for file in files]
    assert [line.split(" ", 1)[0] for line in lines] == [file.parent.name for file in files] == ["0", "1"]
    for line in lines:
        totals = json.loads(line[line.index("[") : line.index("]") + 1])
        assert totals == pytest.approx([32] * 8, abs=1e-4)
