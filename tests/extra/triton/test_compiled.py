"""Every kernel compiles for every architecture, without a GPU, and spills no registers."""

import subprocess
import sys

import pytest

TARGETS = ["cuda 80", "cuda 90", "cuda 100", "gfx942"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles(target, tmp_path, monkeypatch):
    """In a process of its own: this one interprets kernels."""
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-m", "khot.kernels.triton.compiled", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 20
    for line in lines:
        words = line.split()
        registers, spilled, shared = (
            int(words[words.index(w) - 1]) for w in ("registers", "spilled", "bytes")
        )
        assert 0 < registers <= 255, line
        assert spilled == 0, line
        assert shared <= 49152, line
