"""The command `khot bench compiled`."""

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
from khot.whole_files import write_json
from khot_bench.compiled.record import compiled_table, operators, run_compiled
from khot_bench.results import results_path

__all__ = ["compiled"]


def compiled(
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods", metavar="NAME", help="Only these operators; may be repeated.", show_default="all"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small inputs: to see that it runs.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write.", show_default="benchmarks/results/compiled.json"),
    ] = None,
    root: Annotated[Path, typer.Option(help="The checkout that holds docs and benchmarks.")] = Path(),
) -> None:
    """Every operator under torch.compile: time to compile, programs made, running time beside eager."""
    unknown = [name for name in methods or () if name not in operators()]
    if unknown:
        known = ", ".join(operators())
        raise typer.BadParameter(
            f"unknown method {unknown[0]!r}; choose from {known}", param_hint="--methods"
        )
    with progress("khot bench compiled") as report:
        found = run_compiled(methods or operators(), report, shlex.join(["khot", *sys.argv[1:]]), quick=quick)
    show_grid(compiled_table(found), Console())
    if output is None and (methods or quick):
        typer.echo("Not written: a part of the operators, or a quick run, is kept only with --output.")
        return
    path = output or results_path("compiled", root)
    write_json(dataclasses.asdict(found), path)
    typer.echo(f"Written to {path}.")
