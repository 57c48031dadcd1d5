"""The command `khot bench compiled`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from khot.cli.progress import progress
from khot.compare.report.terminal import show_grid
from khot_bench.commands._operator_options import Methods, Output, Root, check_methods, keep
from khot_bench.compiled.record import compiled_table, operators, run_compiled

__all__ = ["compiled"]


def compiled(
    methods: Methods = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small inputs: a quick test.")] = False,
    output: Output = None,
    root: Root = Path(),
) -> None:
    """Measure every operator under torch.compile: compile time, number of graphs, run time against eager."""
    check_methods(methods, operators())
    with progress("khot bench compiled") as report:
        found = run_compiled(methods or operators(), report, shlex.join(["khot", *sys.argv[1:]]), quick=quick)
    show_grid(compiled_table(found), Console())
    partial = "a part of the operators, or a quick run," if methods or quick else ""
    keep("compiled", found, output, root, partial)
