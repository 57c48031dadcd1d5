"""Runs the processes, and makes tables of what they found: measured ones, and a model for larger machines."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from khot.compare.cost.others import Others
from khot.compare.machine import describe_origin
from khot.compare.report.grid import Grid, bytes_text, ratio_text, seconds_text
from khot.compare.schema import read
from khot_bench.results import load_record

__all__ = ["Distributed", "Row", "distributed_table", "load_distributed", "run_distributed"]

_METHODS = ("sigmoid", "laplace", "sparse", "hard")
_SECONDS = 900.0
_LARGE, _MANY = 1_000_000_000, 64


@dataclass(frozen=True)
class Row:
    """One operator over so many processes, beside gathering the scores; ``apart`` is how much they differ."""

    method: str
    mode: str
    processes: int
    seconds: float
    usual_seconds: float
    messages: int
    bytes: int
    usual_bytes: int
    apart: float


@dataclass(frozen=True)
class Distributed:
    """All rows, the constants of the model, and where and when they were measured."""

    n: int
    k: int
    rows: tuple[Row, ...]
    latency: float
    bandwidth: float
    others: float
    command: str
    origin: str


def run_distributed(
    report: Callable[[str, float], None], command: str, *, quick: bool = False
) -> Distributed:
    """Measure with one process and with two."""
    n, k, rounds = (40_000, 400, 2) if quick else (10_000_000, 100_000, 7)
    others = Others.start()
    rows: list[Row] = []
    found: dict[str, Any] = {}
    for i, size in enumerate((1, 2)):
        report(f"{size} processes", i / 2)
        found = _run({"n": n, "k": k, "rounds": rounds, "processes": size, "methods": _METHODS})
        rows += [read(Row, row, "answer") for row in found["rows"]]
    report("done", 1.0)
    return Distributed(
        n, k, tuple(rows), found["latency"], found["bandwidth"], others.cores(), command, describe_origin(())
    )


def _run(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "khot_bench.distributed.child", json.dumps(request)]
        running = [
            subprocess.Popen(
                [*command, str(rank), str(Path(folder) / "store")],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "OMP_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(request["processes"])
        ]
        try:
            texts = [process.communicate(timeout=_SECONDS) for process in running]
        finally:
            for process in running:
                process.kill()
    for process, (_, err) in zip(running, texts, strict=True):
        if process.returncode:
            raise RuntimeError(f"bench distributed: a process ended with {process.returncode}: {err[-2000:]}")
    return json.loads(texts[0][0])


def distributed_table(found: Distributed, name: str = "distributed") -> Grid:
    """One table.

    Args:
        found: what was measured.
        name: ``distributed``, the measured one; ``distributed-model``, what its constants say of large rows.
    """
    if name == "distributed":
        return _measured(found)
    if name == "distributed-model":
        return _model(found)
    raise ValueError(f"unknown table {name!r}; there are distributed, distributed-model")


def _measured(found: Distributed) -> Grid:
    rows = [
        (
            row.method,
            row.mode,
            str(row.processes),
            seconds_text(row.seconds),
            seconds_text(row.usual_seconds),
            ratio_text(row.seconds / row.usual_seconds),
            str(row.messages),
            bytes_text(row.bytes) if row.bytes else "0",
            bytes_text(row.usual_bytes) if row.usual_bytes else "0",
            f"{row.apart:.0e}" if row.apart else "0",
        )
        for row in found.rows
    ]
    busy = f" Other processes used {found.others:.1f} cores meanwhile." if found.others >= 0.1 else ""
    return Grid(
        caption=f"One row of n = {found.n:,} float32 scores, k = {found.k:,}, on gloo, one thread a process",
        header=(
            "method",
            "mode",
            "processes",
            "time",
            "gathered",
            "ratio",
            "messages",
            "bytes sent",
            "gathered",
            "apart",
        ),
        rows=tuple(rows),
        notes=(
            "Time of khot.parallel, and of gathering the scores and calling the operator in every process: "
            "medians of alternating rounds, the slower process counts. Bytes that one process sends, counted "
            "as a ring sends them. Apart: the largest difference between the two results." + busy,
        ),
        origin=found.origin,
        text_columns=2,
    )


def _model(found: Distributed) -> Grid:
    rows: list[tuple[str, ...]] = []
    two = [row for row in found.rows if row.processes == 2 and row.mode == "forward"]
    hops = math.ceil(math.log2(_MANY))
    for row in two:
        alone = next(
            each.seconds
            for each in found.rows
            if (each.method, each.mode, each.processes) == (row.method, row.mode, 1)
        )
        work = max(row.seconds - row.messages * found.latency, 0) / (found.n / 2)
        waiting = row.messages * found.latency * hops
        ours = work * _LARGE / _MANY + waiting + row.bytes / found.bandwidth
        sent = 4 * _LARGE / _MANY * (_MANY - 1)
        usual = alone / found.n * _LARGE + sent / found.bandwidth + found.latency * hops
        rows.append(
            (
                row.method,
                f"{work * 1e9:.1f} ns",
                seconds_text(work * _LARGE / _MANY),
                seconds_text(waiting),
                seconds_text(ours),
                seconds_text(alone / found.n * _LARGE),
                seconds_text(sent / found.bandwidth),
                seconds_text(usual),
                ratio_text(ours / usual),
            )
        )
    return Grid(
        caption=f"A model, not a measurement: n = {_LARGE:.0e} on {_MANY} processes",
        header=(
            "method",
            "work a score",
            "shard",
            "messages",
            "together",
            "whole row",
            "gathering",
            "together, gathered",
            "ratio",
        ),
        rows=tuple(rows),
        notes=(
            f"Constants of this machine: a message takes {seconds_text(found.latency)}, here times "
            f"⌈log₂ {_MANY}⌉ = {hops}; {found.bandwidth / 1e9:.2f} GB/s between processes; work a score: the "
            "time measured above with two processes, without its messages, by the length of a shard.",
        ),
        origin=found.origin,
        text_columns=1,
    )


def load_distributed(root: Path) -> Distributed:
    """The committed measurement."""
    return load_record(Distributed, "distributed", root)
