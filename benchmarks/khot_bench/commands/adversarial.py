"""The command `khot bench adversarial`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from khot.cli.progress import progress
from khot.compare.report.terminal import show_grid
from khot.relaxations import registry
from khot.whole_files import write_json
from khot_bench.adversarial.matrix import contestants, run_matrix
from khot_bench.adversarial.tables import matrix_table
from khot_bench.results import results_path

__all__ = ["adversarial"]


def adversarial(
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods", metavar="NAME", help="Only these operators; may be repeated.", show_default="all"
        ),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Other packages too.")] = True,
    output: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write.", show_default="benchmarks/results/adversarial.json"),
    ] = None,
    root: Annotated[Path, typer.Option(help="The checkout that holds docs and benchmarks.")] = Path(),
) -> None:
    """Every operator and every peer against the inputs that have broken one of them."""
    unknown = [name for name in methods or () if name not in registry.names()]
    if unknown:
        known = ", ".join(registry.names())
        raise typer.BadParameter(
            f"unknown method {unknown[0]!r}; choose from {known}", param_hint="--methods"
        )
    sources = contestants(peers)
    if methods:
        sources = tuple(f"khot.compare.cost.side:relaxation:{name}" for name in methods)
    with progress("khot bench adversarial") as report:
        matrix = run_matrix(sources, report, shlex.join(["khot", *sys.argv[1:]]))
    for name in ("adversarial", "adversarial-reported", "adversarial-details"):
        show_grid(matrix_table(matrix, name), Console())
    partial = (
        methods or any(cell.outcome == "absent" for row in matrix.rows for cell in row.cells) or not peers
    )
    if output is None and partial:
        typer.echo("Not written: a matrix without every operator and peer is kept only with --output.")
        return
    path = output or results_path("adversarial", root)
    write_json(dataclasses.asdict(matrix), path)
    typer.echo(f"Written to {path}.")
