"""Options shared by the commands that run over operators: which operators, and where to write."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from khot.files.whole import write_json
from khot_bench.results import results_path

__all__ = ["Methods", "Output", "Root", "check_methods", "keep"]

Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods", metavar="NAME", help="Only these operators; may be repeated.", show_default="all"
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(help="The JSON file to write.", show_default="benchmarks/results/<command>.json"),
]
Root = Annotated[Path, typer.Option(help="The checkout that holds docs and benchmarks.")]


def check_methods(methods: Sequence[str] | None, known: Sequence[str]) -> None:
    """An error of the option that names the operators there are."""
    unknown = [name for name in methods or () if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"unknown method {unknown[0]!r}; choose from {', '.join(known)}", param_hint="--methods"
        )


def keep(name: str, found: Any, output: Path | None, root: Path, partial: str) -> None:
    """Write the dataclass; one that is ``partial``, which says why, only where `output` tells."""
    if output is None and partial:
        typer.echo(f"Not written: {partial} is kept only with --output.")
        return
    path = output or results_path(name, root)
    write_json(dataclasses.asdict(found), path)
    typer.echo(f"Written to {path}.")
