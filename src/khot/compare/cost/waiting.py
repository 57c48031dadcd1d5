"""How long this process has waited for a processor that others were using."""

from __future__ import annotations

from pathlib import Path

__all__ = ["waited_seconds"]

_TASKS = Path("/proc/self/task")


def waited_seconds() -> float:
    """The time that threads of this process were ready to run but did not run, since they started.

    Zero if the kernel does not record it.
    """
    return sum(_waited(task) for task in _TASKS.iterdir()) / 1e9 if _TASKS.is_dir() else 0.0


def _waited(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0  # the thread has ended meanwhile, or there is no account
