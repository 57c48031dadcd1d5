"""The command `khot bench adversarial`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from khot.cli.progress import progress
from khot.compare.report.terminal import show_grid
from khot.relaxations import registry
from khot_bench.adversarial.matrix import contestants, run_matrix
from khot_bench.adversarial.tables import matrix_table
from khot_bench.commands._operator_options import Methods, Output, Root, check_methods, keep

__all__ = ["adversarial"]


def adversarial(
    methods: Methods = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Test other packages too.")] = True,
    output: Output = None,
    root: Root = Path(),
) -> None:
    """Test every operator and every other package on inputs that have broken at least one of them."""
    check_methods(methods, registry.names())
    sources = contestants(peers)
    if methods:
        sources = tuple(f"khot.compare.cost.side:relaxation:{name}" for name in methods)
    with progress("khot bench adversarial") as report:
        matrix = run_matrix(sources, report, shlex.join(["khot", *sys.argv[1:]]))
    for name in ("adversarial", "adversarial-reported", "adversarial-details"):
        show_grid(matrix_table(matrix, name), Console())
    absent = any(cell.outcome == "absent" for row in matrix.rows for cell in row.cells)
    partial = "a matrix without every operator and peer" if methods or absent or not peers else ""
    keep("adversarial", matrix, output, root, partial)
