import subprocess
import sys
import time

import pytest

from khot.compare.cost.others import Others

SPIN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_own_time_does_not_count(monkeypatch):
    # The machine of the test may be busy: only what this process does is let through.
    monkeypatch.setattr("khot.compare.cost.others._machine_seconds", time.process_time)
    watch = Others.start()
    spin(0.3)
    assert watch.cores() < 0.2


@pytest.mark.slow
def test_another_process_counts_until_it_is_ours():
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        watch = Others.start()
        time.sleep(1.5)
        assert watch.cores() > 0.2
    finally:
        child.kill()
        child.wait()
