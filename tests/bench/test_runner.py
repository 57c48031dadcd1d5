from dataclasses import replace

import pytest
import torch

from khot.compare.cost import memory
from khot.compare.cost.case import Case
from khot.compare.cost.failure import Failure
from khot.compare.cost.memory import Limits, Peak
from khot.compare.cost.timing import QUICK
from khot_bench.results import load, save
from khot_bench.runner import Settings, run
from khot_bench.suites import load_suite, suite_names
from strategies import bench_examples as examples


@pytest.fixture(scope="module")
def document():
    suite = examples.suite("right", "wrong", "failing", "hard", peers=("absent",))
    return run(suite, Settings(quick=True, command="khot bench example"))


def timed(document, side):
    return {record.mode for record in document.measurements if record.side == side}


def failed(document, side):
    return {(record.mode, record.kind) for record in document.failures if record.side == side}


def test_the_right_side_is_timed(document):
    assert timed(document, "right") == {"forward", "forward+backward"}
    assert all(record.ratio > 0 for record in document.measurements)


def test_the_wrong_side_is_recorded_and_not_timed(document):
    assert not timed(document, "wrong")
    assert failed(document, "wrong") == {("forward", "wrong"), ("forward+backward", "wrong")}
    (gate,) = (gate for gate in document.checks if gate.side == "wrong")
    assert not gate.passed


def test_the_failing_side_is_recorded_and_not_raised(document):
    assert not timed(document, "failing")
    assert {record.reason for record in document.failures if record.side == "failing"} == {
        "RuntimeError: cannot do this"
    }


def test_a_side_without_gradient_is_timed_forward(document):
    assert timed(document, "hard") == {"forward"}
    assert failed(document, "hard") == {("forward+backward", "no gradient")}


def test_the_absent_side_is_recorded(document):
    (absent,) = document.absent
    assert absent.name == "absent.topk"
    assert absent.install.endswith("pip install --some-option absent==9.9")


def test_the_baseline_is_measured_against_itself(document):
    assert timed(document, "torch.softmax") == {"forward", "forward+backward"}


def test_the_document_survives_its_file(document, tmp_path):
    save(document, tmp_path / "example.json")
    assert load(tmp_path / "example.json") == document
    assert document.command == "khot bench example"
    assert document.versions["torch"]


def test_same_map_refers_to_the_suite(document):
    assert {side.name: side.same_map for side in document.sides} == {
        "torch.softmax": False,
        "right": True,
        "wrong": True,
        "failing": False,
        "hard": False,
    }


def test_threads_are_set_for_the_run_and_restored(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "khot_bench.runner.prepare",
        lambda side, x, k, mode: lambda: seen.append(torch.get_num_threads()),
    )
    before = torch.get_num_threads()
    found = run(examples.suite("right"), Settings(threads=(2, 1), quick=True))
    assert set(seen) == {1, 2}
    assert torch.get_num_threads() == before
    assert {record.threads for record in found.measurements} == {1, 2}


def test_a_suite_about_another_instruction_set_is_refused():
    suite = replace(examples.suite("right"), instruction_set="avx9")
    with pytest.raises(ValueError, match="the suite example needs avx9 kernels, this machine uses"):
        run(suite, Settings(quick=True))


def test_peers_can_be_left_out():
    assert not run(examples.suite("right", peers=("absent",)), Settings(quick=True, peers=False)).absent


def test_only_keeps_the_named_sides():
    found = run(examples.suite("right", "hard"), Settings(quick=True, only=("HAR",)))
    assert [side.name for side in found.sides] == ["torch.softmax", "hard"]
    with pytest.raises(ValueError, match=r"there are right, hard, absent\.topk"):
        run(examples.suite("right", "hard", peers=("absent",)), Settings(quick=True, only=("x",)))


def test_what_cannot_pass_the_probe_is_not_called_here(monkeypatch):
    asked = []

    def probe(source, case, limits):
        asked.append((source, case.name, limits))
        if source.endswith("failing"):
            return {"forward": Failure("memory", "too big"), "forward+backward": Failure("time", "too slow")}
        return {"forward": Peak(1000, 0.1), "forward+backward": Failure("memory", "too big")}

    monkeypatch.setattr(memory, "measure", probe)
    limits = Limits(seconds=1)
    found = run(examples.suite("right", "failing"), Settings(limits=limits, budget=QUICK))
    assert [source for source, _, _ in asked] == [
        "khot_bench.sides.baselines:softmax",
        "strategies.known_sides:right",
        "strategies.known_sides:failing",
    ]
    assert {entry[2] for entry in asked} == {limits}
    assert failed(found, "failing") == {("forward", "memory"), ("forward+backward", "time")}
    assert timed(found, "right") == {"forward"}
    assert {(record.side, record.extra_bytes) for record in found.memory} == {
        ("torch.softmax", 1000),
        ("right", 1000),
    }


@pytest.mark.parametrize("name", suite_names())
def test_suites_are_consistent(name):
    suite = load_suite(name)
    assert suite.name == name
    for cases in (suite.cases, suite.quick_cases):
        assert cases
        assert len({case.name for case in cases}) == len(cases)
        assert all(isinstance(case, Case) for case in cases)
    sources = (suite.baseline, *suite.sides, *suite.peers)
    assert len(set(sources)) == len(sources)


def test_unknown_suite_names_those_there_are():
    with pytest.raises(ValueError, match=r"choose from .*sigmoid"):
        load_suite("x")
