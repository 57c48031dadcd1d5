"""The process in which `khot.compare.cost.memory` measures one side; not for use by hand."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from khot.compare.cost.calls import MODES, NoGradient, prepare
from khot.compare.cost.case import Case
from khot.compare.cost.failure import first_line
from khot.compare.cost.side import Mode, Side, load_side
from khot.compare.schema import read

__all__ = ["claim_stdout", "limit_data", "main"]


def main(request: dict[str, Any]) -> None:
    """Measure and print one JSON line per mode."""
    answers = claim_stdout()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    side = load_side(request["source"])
    case = read(Case, request["case"], "case")

    small = case.shrunk()
    for mode in MODES:
        _warm_up(side, small, mode)
    x = case.make()
    for mode in MODES:
        call = prepare(side, x, case.k, mode)
        limit_data(request["bytes"])
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        answer = _measure(call)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps({"mode": mode, **answer}) + "\n")
        answers.flush()


def _warm_up(side: Side, case: Case, mode: Mode) -> None:
    try:
        prepare(side, case.make(), case.k, mode)()
    except Exception as error:
        # A side may refuse so small an input; the real call says what is wrong, if anything is.
        sys.stderr.write(f"warm-up: {first_line(error)}\n")


def claim_stdout() -> Any:
    """Reserve stdout for the results; everything that packages print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _measure(call: Callable[[], object]) -> dict[str, Any]:
    before = _reset_peak()
    start = time.perf_counter()
    try:
        call()
    except NoGradient as error:
        return _failure("no gradient", error)
    except MemoryError as error:
        return _failure("memory", error)
    except Exception as error:
        # The CPU allocator of PyTorch reports a failed allocation as a RuntimeError.
        out = (
            "allocate memory" in str(error) or "not enough memory" in str(error) or "bad_alloc" in str(error)
        )
        return _failure("memory" if out else "error", error)
    return {"bytes": max(0, _status("VmHWM") - before), "seconds": time.perf_counter() - start}


def _failure(kind: str, error: Exception) -> dict[str, Any]:
    return {"failure": {"kind": kind, "reason": f"{type(error).__name__}: {first_line(error)}"}}


def _reset_peak() -> int:
    """Set the high-water mark to what is resident now, and return that."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def limit_data(extra: int) -> None:
    """Limit further allocations of this process to ``extra`` bytes."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + extra, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
