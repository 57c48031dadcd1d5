"""Every kernel that Python can call is fuzzed: see tests/fuzz/kernels."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENTRY = re.compile(r'^ +(?:KHOT_BOTH\((\w+)\)|\{"(\w+)", KHOT_FASTCALL)', re.MULTILINE)


def test_every_kernel_has_a_target():
    kernels = {both or one for both, one in ENTRY.findall((ROOT / "csrc/module.cpp").read_text())}
    assert {"sigmoid_topk", "cube", "small_rows"} <= kernels
    targets = "".join(path.read_text() for path in (ROOT / "tests/fuzz/kernels").glob("*.cpp"))
    called = set(re.findall(r"khot::(\w+)[(<]", targets))
    assert kernels <= called, kernels - called


def test_every_target_is_run():
    folder = ROOT / "tests/fuzz/kernels"
    declared = re.findall(r"^void (\w+)\(Input& in\);", (folder / "checks.h").read_text(), re.MULTILINE)
    assert len(declared) > 9
    run = re.findall(r"fuzz::(\w+)[,}]", (folder / "target.cpp").read_text())
    assert set(declared) == set(run)
