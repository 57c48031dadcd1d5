"""Does the runs of a reproduction that are not done yet, and shows what came out."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from khot.bench.reproduction import Ledger, Reproduction, load_ledger

__all__ = ["missing_packages", "reproduce"]


def missing_packages(reproduction: Reproduction) -> tuple[str, ...]:
    """What must be installed first."""
    return tuple(package for package in reproduction.needs if not _installed(package))


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def reproduce(
    reproduction: Reproduction, path: Path, *, quick: bool, report: Callable[[str, float], None]
) -> Ledger:
    """All runs, those in the file ``path`` taken from there; each is kept as soon as it is done."""
    ledger = load_ledger(reproduction.name, path)
    runs = reproduction.runs(quick)
    for i, settings in enumerate(runs):
        if ledger.find(settings) is not None:
            continue
        report(", ".join(f"{key} {value}" for key, value in settings.items()), i / len(runs))
        ledger.add(settings, reproduction.run(settings), path)
    report("done", 1.0)
    return ledger
