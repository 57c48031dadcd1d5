"""Every operator compiled, each in a process of its own, and what was measured of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from khot.compare.cost.failure import ended
from khot.compare.machine import describe_origin
from khot.compare.report.grid import Grid, ratio_text
from khot.compare.schema import read
from khot.relaxations import registry
from khot_bench.results import load_record

__all__ = ["Compiled", "Row", "compiled_table", "load_compiled", "operators", "run_compiled"]

_SHAPE, _K = (256, 256), 8
_SECONDS = 900.0


@dataclass(frozen=True)
class Row:
    """One operator; ``failure`` says why there are no numbers."""

    method: str
    compile_seconds: float = 0.0
    again_for_tensors: int = 0
    again_for_numbers: int = 0
    again_for_batches: int = 0
    ratio: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Compiled:
    """All operators, and where and when it was measured."""

    rows: tuple[Row, ...]
    command: str
    origin: str


def operators() -> tuple[str, ...]:
    """Those that are compiled: all but the random ones."""
    return tuple(name for name in registry.names() if not registry.get(name).stochastic)


def run_compiled(
    methods: Sequence[str], report: Callable[[str, float], None], command: str, *, quick: bool = False
) -> Compiled:
    """Measure each method in turn."""
    rows: list[Row] = []
    for i, method in enumerate(methods):
        report(method, i / len(methods))
        rows.append(_run(method, quick))
    report("done", 1.0)
    return Compiled(tuple(rows), command, describe_origin(()))


def _run(method: str, quick: bool) -> Row:
    shape = (16, 16) if quick else _SHAPE
    request = {"method": method, "shape": shape, "k": _K, "rounds": 5 if quick else 60}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "khot_bench.compiled.child", json.dumps(request)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "OMP_NUM_THREADS": "1",
                "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                "TORCHINDUCTOR_CACHE_DIR": folder,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    if done.returncode or not done.stdout.strip():
        return Row(method, failure=ended(done.returncode, done.stderr, _SECONDS).reason)
    return read(Row, {"method": method, **json.loads(done.stdout)}, "answer")


def compiled_table(found: Compiled) -> Grid:
    """One row an operator."""
    rows: list[tuple[str, ...]] = []
    for row in found.rows:
        if row.failure:
            rows.append((row.method, row.failure, "", "", "", ""))
            continue
        again = (row.again_for_tensors, row.again_for_numbers, row.again_for_batches)
        seconds = f"{row.compile_seconds:.1f} s"
        rows.append((row.method, seconds, *map(str, again), ratio_text(row.ratio)))
    size = "×".join(map(str, _SHAPE))
    return Grid(
        caption=f"Under torch.compile: {size} scores, k = {_K}, forward and backward, one thread",
        header=("method", "added to compiling", "τ tensors", "τ numbers", "batch sizes", "time / eager"),
        rows=tuple(rows),
        notes=(
            "Added to compiling: what the operator adds to the first call of a compiled function, without "
            "caches. τ tensors, τ numbers, batch sizes: programs made again as three more of them come. "
            "Time / eager: least time of 60, compiled over eager, in turns.",
        ),
        origin=found.origin,
        text_columns=1,
    )


def load_compiled(root: Path) -> Compiled:
    """The committed measurement."""
    return load_record(Compiled, "compiled", root)
