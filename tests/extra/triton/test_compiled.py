"""Every kernel compiles for every architecture, without a GPU, and spills no registers."""

import os
import subprocess
import sys

import pytest

TARGETS = ["cuda 80", "cuda 90", "cuda 100", "gfx942"]


@pytest.fixture(scope="module")
def compilers(tmp_path_factory):
    """A process for each target, all at once: this one interprets kernels."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    command = [sys.executable, "-m", "khot.kernels.triton.compiled"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = {t: subprocess.Popen([*command, t], env=environment, **pipes) for t in TARGETS}
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles(target, compilers):
    said, complaint = compilers[target].communicate()
    assert compilers[target].returncode == 0, said + complaint
    lines = said.splitlines()
    assert len(lines) >= 45
    for line in lines:
        words = line.split()
        registers, spilled, shared = (
            int(words[words.index(w) - 1]) for w in ("registers", "spilled", "bytes")
        )
        assert 0 < registers <= 255, line
        assert spilled == 0, line
        assert shared <= 49152, line
