"""What a reproduction is, and how it is done: an experiment made of runs, each of which is done once.

From the finished runs, kept in a `Ledger`, come a table and a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from khot.compare.report.grid import Grid
from khot_bench.reproduce.ledger import Ledger, Numbers, Settings, load_ledger

__all__ = ["Reproduction", "finish_runs", "missing_packages"]


@dataclass(frozen=True)
class Reproduction:
    """An experiment.

    Args:
        name: the same as its module's: author and year of what it follows, or a topic.
        title: one line.
        runs: the settings of all runs, or of a few small ones if ``quick``; in the order in which to do them.
        run: the numbers of one run.
        tables: of the finished runs.
        plot: draws the finished runs into the file; matplotlib is there.
        needs: packages beyond khot's core, as pip names them.
    """

    name: str
    title: str
    runs: Callable[[bool], Sequence[Settings]]
    run: Callable[[Settings], Numbers]
    tables: Callable[[Ledger], tuple[Grid, ...]]
    plot: Callable[[Ledger, Path], None]
    needs: tuple[str, ...] = ()


def missing_packages(reproduction: Reproduction) -> tuple[str, ...]:
    """What must be installed first."""
    return tuple(package for package in reproduction.needs if not _installed(package))


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def finish_runs(
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
