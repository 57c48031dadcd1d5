"""How much of the machine other processes use while something is measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

__all__ = ["Others"]


@dataclass(frozen=True)
class Others:
    """A stopwatch for the processor time of all other processes, without this one and its children."""

    started: float
    machine: float
    own: float

    @classmethod
    def start(cls) -> Others:
        """Start the stopwatch."""
        return cls(time.perf_counter(), _machine_seconds(), _own_seconds())

    def cores(self) -> float:
        """How many cores other processes have used since the start, on average."""
        elapsed = time.perf_counter() - self.started
        used = (_machine_seconds() - self.machine) - (_own_seconds() - self.own)
        return round(max(0.0, used / elapsed), 3) if elapsed > 0 else 0.0


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _machine_seconds() -> float:
    """Busy time of all cores since boot: user, nice, system, irq, softirq, steal."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
