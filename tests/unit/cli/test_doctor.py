"""khot doctor: what it says of this machine, and of machines that lack something."""

import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch

from khot.__main__ import main
from khot.cli import doctor
from khot.kernels.loader import NativeStatus, status

LOADED = NativeStatus(True, "loaded", "/lib/_native.abi3.so", "avx2", ("base", "avx2"), True)
NOT_BUILT = NativeStatus(False, "not built")


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch):
    for name in doctor.SWITCHES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def with_status(monkeypatch):
    return lambda found: monkeypatch.setattr(doctor, "status", lambda: found)


def text():
    return "\n".join(doctor.lines(doctor.collect()))


def test_facts_of_this_machine():
    report = doctor.collect()
    assert report.versions["torch"] == torch.__version__
    assert report.versions["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert report.threads == torch.get_num_threads()
    assert 1 <= report.cpus <= (os.cpu_count() or 1)
    assert report.native == status()
    extras = {"apps", "sae", "sindy", "cli", "compare", "explore", "triton", "jax", "onnx", "docs", "dev"}
    assert set(report.missing) == extras


def test_tested_torch_is_the_pinned_one():
    pins = (Path(__file__).parents[3] / "constraints.txt").read_text()
    assert re.search(r"^torch==(\S+)$", pins, re.MULTILINE)[1] == doctor.TESTED_TORCH
    assert f"(tested with {doctor.TESTED_TORCH})" in text()


def test_library_in_use(with_status):
    with_status(LOADED)
    assert re.search(r"native library +/lib/_native.abi3.so", text())
    assert re.search(r"instruction set +avx2 \(this CPU has base, avx2\)", text())
    assert re.search(r"OpenMP +yes", text())
    assert "note:" not in text()
    assert "compiler" not in text()


@pytest.mark.parametrize("asked", ["avx512", "nonsense"])
def test_instruction_set_that_is_not_the_one_asked_for(with_status, monkeypatch, asked):
    with_status(LOADED)
    monkeypatch.setenv("KHOT_ISA", asked)
    assert re.search(f"environment +KHOT_ISA={asked}", text())
    assert f"note: KHOT_ISA={asked} asks for" in text()
    assert "avx2 is used" in text()


def test_instruction_set_that_is_the_one_asked_for(with_status, monkeypatch):
    with_status(dataclasses.replace(LOADED, isa="base"))
    monkeypatch.setenv("KHOT_ISA", "base")
    assert "note:" not in text()


def test_library_without_openmp(with_status):
    with_status(dataclasses.replace(LOADED, openmp=False))
    assert "note: The compiled library was built without OpenMP" in text()


def test_missing_library_and_compiler(with_status, monkeypatch):
    with_status(NOT_BUILT)
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert re.search(r"native library +not in use, not built", text())
    assert re.search(r"C\+\+ compiler +not found", text())
    assert "note: No C++ compiler found. Debian/Ubuntu: apt install g++" in text()


def test_missing_library_with_compiler(with_status, monkeypatch):
    with_status(NOT_BUILT)
    monkeypatch.setattr(doctor, "_compiler", lambda: "/usr/bin/g++")
    monkeypatch.setattr(doctor, "_has_python_headers", lambda: True)
    assert "note: A C++ compiler is here now" in text()
    monkeypatch.setattr(doctor, "_has_python_headers", lambda: False)
    assert "note: No Python.h found." in text()


def test_library_switched_off_needs_no_advice(with_status, monkeypatch):
    with_status(NativeStatus(False, "switched off by KHOT_NO_NATIVE"))
    monkeypatch.setenv("KHOT_NO_NATIVE", "1")
    assert "not in use, switched off by KHOT_NO_NATIVE" in text()
    assert "note:" not in text()


def test_missing_packages_come_with_the_line_that_installs_them(monkeypatch):
    installed = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name in ("rich", "plotly") else installed(name)
    )
    report = doctor.collect()
    assert report.missing["cli"] == ["rich"]
    assert report.missing["compare"] == ["plotly", "rich"]  # it is made of cli and more
    assert {"plotly", "rich"} <= set(report.missing["dev"])
    assert re.search(r'extra compare +lacks plotly, rich: pip install "khot\[compare\]"', text())


def test_complete_extra(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0")
    assert re.search(r"extra dev +complete", text())


def test_source_tree_that_is_not_installed(monkeypatch):
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "khot" else installed(name))
    assert "not installed (running from its source tree)" in text()


def test_json_is_the_same_report(capsys):
    assert main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(dataclasses.asdict(doctor.collect())))


def test_plain_report(capsys):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == doctor.lines(doctor.collect())


def test_exit_code_when_the_library_is_required(with_status, monkeypatch, capsys):
    with_status(NOT_BUILT)
    assert doctor.run(json=False) == 0
    monkeypatch.setenv("KHOT_REQUIRE_NATIVE", "1")
    assert doctor.run(json=False) == 1
    with_status(LOADED)
    assert doctor.run(json=False) == 0
    assert capsys.readouterr().out


def test_wrong_option(capsys):
    assert main(["doctor", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err
    assert main(["doctor", "--help"]) == 0
    assert "--json" in capsys.readouterr().out
