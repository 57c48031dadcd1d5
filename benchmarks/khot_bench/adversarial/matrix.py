"""Runs every operator and every peer against every trap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from khot.compare.cost.failure import ended
from khot.compare.cost.side import Kind, load_side
from khot.compare.machine import describe_origin
from khot.compare.schema import read
from khot.relaxations import registry
from khot_bench.adversarial.reported import REPORTED
from khot_bench.adversarial.traps import TRAPS
from khot_bench.peers import PeerAbsent, all_peers
from khot_bench.results import load_record

__all__ = ["ALL_TRAPS", "Cell", "Matrix", "Row", "contestants", "load_matrix", "run_matrix", "run_row"]

ALL_TRAPS = (*TRAPS, *REPORTED)
_BYTES = 4 * 2**30

Outcome = Literal["pass", "wrong", "NaN", "error", "absent", "n/a"]


@dataclass(frozen=True)
class Cell:
    """How one contestant did at one trap.

    Args:
        outcome: in a word; n/a where the trap asks for what the operator does not promise.
        detail: why, in a line.
    """

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """One contestant and its cells, in the order of the traps."""

    name: str
    kind: Kind
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Matrix:
    """The whole matrix, and where and when it was made."""

    traps: tuple[str, ...]
    rows: tuple[Row, ...]
    command: str
    origin: str


def contestants(peers: bool = True) -> tuple[str, ...]:
    """The sources of every registered operator, `soft_rank`, and every peer."""
    ours = (f"khot.compare.cost.side:relaxation:{name}" for name in registry.names())
    return (*ours, "khot_bench.sides.operators:soft_rank", *(all_peers().values() if peers else ()))


def run_matrix(
    sources: Sequence[str], report: Callable[[str, float], None], command: str = "", seconds: float = 20.0
) -> Matrix:
    """Every source against every trap.

    Args:
        sources: what `contestants` gives.
        report: told who is at work, and which share is done.
        command: what the user typed, for the record.
        seconds: the processor time one trap may take.
    """
    rows: list[Row] = []
    packages: dict[str, None] = {}
    for i, source in enumerate(sources):
        try:
            side = load_side(source)
        except PeerAbsent as absent:
            cell = Cell("absent", f"{absent.reason}; {absent.install}")
            rows.append(Row(absent.name, "peer", (cell,) * len(ALL_TRAPS)))
            continue
        report(side.name, i / len(sources))
        packages[side.package] = None
        rows.append(Row(side.name, side.kind, run_row(source, seconds)))
    report("done", 1.0)
    names = tuple(trap.name for trap in ALL_TRAPS)
    return Matrix(names, tuple(rows), command, describe_origin(tuple(packages)))


def run_row(source: str, seconds: float = 20.0) -> tuple[Cell, ...]:
    """One contestant against every trap; one that dies of a trap starts again at the next."""
    cells: list[Cell] = []
    while len(cells) < len(ALL_TRAPS):
        request = {"source": source, "start": len(cells), "seconds": seconds, "bytes": _BYTES}
        done = subprocess.run(
            [sys.executable, "-m", "khot_bench.adversarial.child", json.dumps(request)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        cells += [read(Cell, json.loads(line), "answer") for line in done.stdout.splitlines()]
        if len(cells) < len(ALL_TRAPS):
            cells.append(Cell("error", ended(done.returncode, done.stderr, seconds).reason))
    return tuple(cells)


def load_matrix(root: Path) -> Matrix:
    """The committed matrix."""
    return load_record(Matrix, "adversarial", root)
