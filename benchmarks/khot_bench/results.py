"""The JSON document of a benchmark run, written to and read from `benchmarks/results/<suite>.json`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from khot.compare.cost.case import Case
from khot.compare.cost.failure import FailureKind
from khot.compare.cost.memory import METHOD
from khot.compare.cost.side import Kind, Mode, Result
from khot.compare.machine import Commit, Machine
from khot.compare.schema import SchemaError, read
from khot.files.untrusted import read_json
from khot.files.whole import write_json

__all__ = [
    "SCHEMA",
    "AbsentSide",
    "CheckRecord",
    "Document",
    "FailureRecord",
    "Measurement",
    "MemoryRecord",
    "SideRecord",
    "load",
    "load_record",
    "read_result",
    "results_path",
    "save",
]

SCHEMA = 2


@dataclass(frozen=True)
class SideRecord:
    """A side that was loaded, see `khot.compare.cost.side.Side`; `same_map` as the suite."""

    name: str
    package: str
    version: str
    kind: Kind
    result: Result
    same_map: bool
    note: str = ""


@dataclass(frozen=True)
class AbsentSide:
    """A side that could not be loaded, why, and how to get it."""

    name: str
    package: str
    reason: str
    install: str


@dataclass(frozen=True)
class Measurement:
    """A timing; see `khot.compare.cost.timing.Timing`."""

    case: str
    side: str
    threads: int
    mode: Mode
    ratio: float
    ratio_low: float
    ratio_high: float
    ratio_min: float
    seconds: float
    seconds_min: float
    baseline_seconds: float
    rounds: int
    disturbed: float


@dataclass(frozen=True)
class CheckRecord:
    """What was found of the result; see `khot_bench.correctness.CorrectnessCheck`."""

    case: str
    side: str
    threads: int
    passed: bool
    reason: str = ""
    sum_error: float | None = None
    value_error: float | None = None
    gradient_error: float | None = None
    differentiable: bool = True


@dataclass(frozen=True)
class FailureRecord:
    """Why a side has no timing at a case; `threads` is None where it does not matter."""

    case: str
    side: str
    mode: Mode
    kind: FailureKind
    reason: str
    threads: int | None = None


@dataclass(frozen=True)
class MemoryRecord:
    """Peak extra memory of one call; see `khot.compare.cost.memory`."""

    case: str
    side: str
    mode: Mode
    extra_bytes: int
    input_bytes: int


@dataclass(frozen=True)
class Document:
    """One run of one suite.

    `kernels` is the instruction set of the compiled kernels, None where khot ran without them; `others`
    is how many cores other processes used in the meantime.
    """

    suite: str
    title: str
    created: str
    command: str
    quick: bool
    threads: tuple[int, ...]
    baseline: str
    time_limit_seconds: float
    memory_limit_bytes: int
    machine: Machine
    versions: dict[str, str]
    commit: Commit | None
    kernels: str | None
    others: float
    cases: tuple[Case, ...]
    sides: tuple[SideRecord, ...]
    absent: tuple[AbsentSide, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    memory: tuple[MemoryRecord, ...] = ()
    memory_method: str = METHOD
    schema: int = SCHEMA


def results_path(suite: str, root: Path) -> Path:
    """Where the document of a suite lives in a checkout."""
    return root / "benchmarks" / "results" / f"{suite}.json"


_Record = TypeVar("_Record")


def load_record(kind: type[_Record], suite: str, root: Path) -> _Record:
    """The committed measurement of a suite that has its own record."""
    path = results_path(suite, root)
    return read(kind, read_result(path), path.name)


def read_result(path: Path) -> Any:
    """The value in a file of results; a `SchemaError` if it is not JSON."""
    try:
        return read_json(path, "khot bench")
    except ValueError as error:
        raise SchemaError(str(error)) from error


def save(document: Document, path: Path) -> None:
    """Write a document; a reader sees the old file or the new one, never half of it."""
    write_json(dataclasses.asdict(document), path)


def load(path: Path) -> Document:
    """Read and validate a document; a `SchemaError` names the file and the place."""
    value = read_result(path)
    found = cast(dict[str, Any], value).get("schema") if isinstance(value, dict) else None
    if found != SCHEMA:
        raise SchemaError(f"{path} has schema {found!r}, this khot reads {SCHEMA}: run the suite again")
    return read(Document, cast(object, value), path.name)
