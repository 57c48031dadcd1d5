"""The judgement of `make soak`: what grows is found, what varies is not."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tools" / "soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]


def records(soak, resident=lambda minute: 300.0, objects=lambda minute: 1000, files=lambda minute: 6):
    return [soak.Record(m / 4, resident(m / 4), 0.1, objects(m / 4), files(m / 4), 3) for m in range(1, 121)]


def test_what_varies_is_flat(soak):
    noise = random.Random(0)
    for resident in (
        lambda minute: 300 + 20 * noise.random(),
        lambda minute: 300 + 200 * (minute == 15),  # a peak
        lambda minute: 200 + 100 * (minute > 2),  # caches fill in the first tenth
        lambda minute: 300 + 0.2 * minute,  # within what is allowed
        lambda minute: 300 - minute,
    ):
        assert soak.faults(soak.judged(records(soak, resident))) == []


def test_what_grows_is_found(soak):
    noise = random.Random(0)
    leaking = records(soak, lambda minute: 300 + minute + 20 * noise.random())
    assert [fault.split()[0] for fault in soak.faults(soak.judged(leaking))] == ["resident_mib"]
    for field, change in (
        ("objects", {"objects": lambda minute: int(1000 + 30 * minute)}),
        ("files", {"files": lambda minute: int(6 + minute / 5)}),
    ):
        assert [fault.split()[0] for fault in soak.faults(soak.judged(records(soak, **change)))] == [field]


def test_a_record_of_this_process(soak):
    record = soak.held(1.5, 0)
    assert record.minutes == 1.5
    assert record.resident_mib > 50
    assert record.objects > 10_000
    assert record.threads >= 1


def test_every_part_runs(soak):
    for part in soak.PARTS:
        if part is not soak.operators:  # tests/process makes these calls
            part()


def test_the_page_states_the_committed_record():
    record = json.loads((ROOT / "benchmarks/results/soak.json").read_text("utf-8"))
    grown = f"{record['growth']['resident_mib']:.1f} MiB"
    page = " ".join((ROOT / "docs/processes.md").read_text("utf-8").split())
    assert f"in {record['rounds']} rounds the resident memory grew by {grown}" in page
    assert [record["growth"][kind] for kind in ("tensor_mib", "objects", "files", "threads")] == [0, 0, 0, 0]
