"""Why a call has no result."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

__all__ = ["Failure", "FailureKind", "ended", "first_line"]

FailureKind = Literal["memory", "time", "error", "wrong", "no gradient"]


@dataclass(frozen=True)
class Failure:
    """Why a side has no result in a case.

    Args:
        kind: in one word, for a table's cell.
        reason: in one line.
    """

    kind: FailureKind
    reason: str


def ended(code: int, errors: str, seconds: float) -> Failure:
    """The failure that the exit of a process implies for the calls it did not report."""
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        return Failure("time", f"longer than {seconds:g} s")
    if code == -signal.SIGKILL:
        return Failure("memory", "killed, most likely for want of memory")
    if code < 0:
        return Failure("error", f"killed by signal {-code}")
    lines = errors.strip().splitlines()
    return Failure("error", lines[-1][:200] if lines else f"exit status {code}")


def first_line(error: BaseException) -> str:
    """The first line of an error message, short enough for a table."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""
