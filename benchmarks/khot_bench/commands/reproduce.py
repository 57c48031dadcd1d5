"""The command `khot reproduce`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from khot.cli.progress import progress
from khot_bench.commands import fail
from khot_bench.reproduce.experiments import ledger_path, load_reproduction, reproduction_names
from khot_bench.reproduce.run import Reproduction, finish_runs, missing_packages

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot reproduce")


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME... | all", show_default=False)] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the reproductions.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing; only write the report on all finished runs.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few small runs: a quick test.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder for runs (JSON) and pictures.", show_default="benchmarks/results/reproduce"
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Number of PyTorch threads.")] = 2,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The folder with the data sets.", show_default="$KHOT_DATA or ~/.cache/khot"),
    ] = None,
    root: Annotated[Path, typer.Option(help="The checkout that holds benchmarks.")] = Path(),
) -> None:
    """Repeat published experiments; finished runs are not repeated."""
    if report:
        _report_reproductions(output, root)
        return
    if show_list or not names:
        for name in reproduction_names():
            typer.echo(f"{name:20} {load_reproduction(name).title}")
        return
    if data_dir is not None:
        os.environ["KHOT_DATA"] = str(data_dir)
    try:
        chosen = [load_reproduction(n) for n in (reproduction_names() if names == ["all"] else names)]
    except ValueError as error:
        fail(str(error), 2)
    if output is None and quick:
        output = Path(tempfile.mkdtemp(prefix="khot-reproduce-"))
    errors = [_error_of(reproduction, quick, output, threads, root) for reproduction in chosen]
    _report_reproductions(output, root)
    if any(errors):
        fail("\n".join(filter(None, errors)))


def _error_of(
    reproduction: Reproduction, quick: bool, output: Path | None, threads: int, root: Path
) -> str | None:
    """Run it; what went wrong does not keep the others from being run."""
    try:
        _reproduce(reproduction, quick, output, threads, root)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        return f"{reproduction.name}: {error}"
    return None


def _reproduce(
    reproduction: Reproduction, quick: bool, output: Path | None, threads: int, root: Path
) -> None:
    import torch
    from rich.console import Console

    from khot.compare.report import terminal

    missing = missing_packages(reproduction)
    if missing:
        raise ModuleNotFoundError(f"needs {', '.join(missing)}: pip install {' '.join(missing)}")
    path = ledger_path(reproduction.name, root) if output is None else output / f"{reproduction.name}.json"
    torch.set_num_threads(threads)
    with progress(f"khot reproduce {reproduction.name}") as report:
        ledger = finish_runs(reproduction, path, quick=quick, report=report)
    for grid in reproduction.tables(ledger):
        terminal.show_grid(grid, Console())
    picture = path.with_suffix(".svg")
    reproduction.plot(ledger, picture)
    typer.echo(f"Written to {path} and {picture}.")


def _report_reproductions(output: Path | None, root: Path) -> None:
    """The page stands beside the runs, or in report/ if these are the committed ones."""
    from khot_bench.reproduce.page import write_reproduction_page

    folder = ledger_path("any", root).parent if output is None else output
    page = root / "report" / "reproduce.html" if output is None else output / "index.html"
    try:
        written = write_reproduction_page(folder, page)
    except ValueError as error:
        fail(str(error))
    typer.echo(f"All results: {page.resolve()}" if written else f"No runs in {folder}: khot reproduce all")
