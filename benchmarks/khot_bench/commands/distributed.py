"""The command `khot bench distributed`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from khot.cli.progress import progress
from khot.compare.report.terminal import show_grid
from khot_bench.commands._operator_options import Output, Root, keep
from khot_bench.distributed.record import distributed_table, run_distributed

__all__ = ["distributed"]


def distributed(
    quick: Annotated[bool, typer.Option("--quick", help="A short row: a quick test.")] = False,
    output: Output = None,
    root: Root = Path(),
) -> None:
    """Measure a long row split over one and two processes: time, messages and bytes, against gathering it."""
    with progress("khot bench distributed") as report:
        found = run_distributed(report, shlex.join(["khot", *sys.argv[1:]]), quick=quick)
    for name in ("distributed", "distributed-model"):
        show_grid(distributed_table(found, name), Console())
    keep("distributed", found, output, root, "a quick run" if quick else "")
