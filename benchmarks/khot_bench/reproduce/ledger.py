"""The finished runs of an experiment, in one JSON file that is written anew after each.

A run is a function of its settings alone (a seed is one of them) and gives numbers, so an experiment that was
stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from khot.compare.machine import describe_origin
from khot.files.untrusted import read_json
from khot.files.whole import write_json

__all__ = ["Ledger", "Numbers", "Settings", "load_ledger", "mean_and_error"]

Settings = Mapping[str, Any]
Numbers = dict[str, float]


@dataclass
class Ledger:
    """The finished runs of a reproduction: settings and numbers, and where and when they were done."""

    name: str
    runs: list[tuple[dict[str, Any], Numbers]] = dataclasses.field(
        default_factory=lambda: list[tuple[dict[str, Any], Numbers]]()
    )
    origin: str = ""

    def find(self, settings: Settings) -> Numbers | None:
        """The numbers of the run with these settings, if it is done."""
        wanted = _plain(settings)
        return next((numbers for done, numbers in self.runs if done == wanted), None)

    def select(self, number: str, **settings: Any) -> list[float]:
        """One number of all runs that have these settings."""
        return [
            numbers[number]
            for done, numbers in self.runs
            if all(done.get(key) == value for key, value in settings.items())
        ]

    def compared(self, key: str, **settings: Any) -> Ledger:
        """The runs with these settings that were done for every value of ``key``: fair if it was stopped."""
        runs = [
            (done, numbers)
            for done, numbers in self.runs
            if all(done.get(name) == value for name, value in settings.items())
        ]
        values = {done[key] for done, _ in runs}
        rest = [json.dumps({**done, key: None}, sort_keys=True) for done, _ in runs]
        kept = [run for run, other in zip(runs, rest, strict=True) if rest.count(other) == len(values)]
        return Ledger(self.name, kept, self.origin)

    def add(self, settings: Settings, numbers: Numbers, path: Path) -> None:
        """Keep a finished run, on disk too: the file is the old one or the new one, never half of one."""
        self.runs.append((_plain(settings), numbers))
        self.origin = describe_origin()
        document = {
            "name": self.name,
            "origin": self.origin,
            "runs": [{"settings": done, "numbers": result} for done, result in self.runs],
        }
        write_json(document, path)


def load_ledger(name: str, path: Path) -> Ledger:
    """The ledger in the file, or an empty one if there is no file."""
    if not path.exists():
        return Ledger(name)
    try:
        document = cast("dict[str, Any]", read_json(path, "load_ledger"))
        runs = [(dict(run["settings"]), dict(run["numbers"])) for run in document["runs"]]
        return Ledger(name, runs, str(document["origin"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a ledger of runs ({error}); move it away to start anew") from error


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error (0 for one value)."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, (variance / count) ** 0.5


def _plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON gives them back."""
    return cast("dict[str, Any]", json.loads(json.dumps(dict(settings))))
