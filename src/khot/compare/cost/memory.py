"""Peak extra memory of one call, measured in a separate process; it also tests whether a side is safe to run.

Method: a fresh process loads the side, calls it once on a tiny input, makes the real input, resets the
kernel's high-water mark of resident memory, calls the side once, and reports the mark minus the memory that
was resident before. The result of the call is included, the input is not. glibc is told to return large
blocks at once, so that memory freed earlier does not hide memory needed now.

A side that exceeds the limits is a result, not an exception: the process limits its own data segment and sets
an alarm, so only that process ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from khot.compare.cost.calls import MODES
from khot.compare.cost.case import Case
from khot.compare.cost.failure import Failure, ended
from khot.compare.cost.side import Mode

__all__ = ["METHOD", "Limits", "Peak", "measure"]

METHOD = "resident high-water mark of a fresh process minus resident before the call"


@dataclass(frozen=True)
class Limits:
    """Limits for one call.

    Args:
        seconds: wall-clock time of a call.
        bytes: memory in addition to the loaded process and its input.
        load_seconds: time to import and to warm up.
    """

    seconds: float = 5.0
    bytes: int = 8 * 2**30
    load_seconds: float = 120.0


@dataclass(frozen=True)
class Peak:
    """Memory and time of one call.

    Args:
        bytes: peak extra memory.
        seconds: time of this single, cold call.
    """

    bytes: int
    seconds: float


def measure(source: str, case: Case, limits: Limits | None = None) -> dict[Mode, Peak | Failure]:
    """Peak extra memory of a side at a case, forward and forward+backward, one thread.

    Args:
        source: `module:function` that returns the side.
        case: the input.
        limits: the limits for a call.
    """
    limits = limits or Limits()
    request = {
        "source": source,
        "case": dataclasses.asdict(case),
        "seconds": limits.seconds,
        "bytes": limits.bytes,
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "khot.compare.cost.memory_child", json.dumps(request)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = child.communicate(timeout=limits.load_seconds + 2 * limits.seconds)
        late = False
    except subprocess.TimeoutExpired:
        child.kill()
        output, errors = child.communicate()
        late = True

    outcome: dict[Mode, Peak | Failure] = {}
    for line in output.splitlines():
        answer = json.loads(line)
        mode: Mode = answer["mode"]
        failure = answer.get("failure")
        outcome[mode] = (
            Failure(failure["kind"], failure["reason"])
            if failure
            else Peak(answer["bytes"], answer["seconds"])
        )
    late_ending = Failure("time", f"not loaded after {limits.load_seconds:g} s")
    ending = late_ending if late else ended(child.returncode, errors, limits.seconds)
    return {mode: outcome.get(mode, ending) for mode in MODES}
