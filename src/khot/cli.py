"""The commands that need the extra `khot[cli]`: compare, bench, reproduce, train, doctor, demo."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from khot.bench.adversarial.command import adversarial
from khot.bench.compare.command import compare
from khot.bench.reproduction import Reproduction
from khot.bench.reproductions import ledger_path, load_reproduction, reproduction_names
from khot.bench.suites import load_suite, suite_names
from khot.cli_train import train_command

__all__ = ["app"]


class _SuiteGroup(TyperGroup):
    """A group whose error for an unknown name lists the names there are."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or an error that names the suites."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not cmd_name.startswith("-") and not ctx.resilient_parsing:
            known = ", ".join(suite_names())
            raise typer.BadParameter(
                f"unknown suite {cmd_name!r}; choose from {known}; or adversarial, list, all, tables", ctx=ctx
            )
        return command


app = typer.Typer(
    help="Differentiable and stochastic top-k for PyTorch.", no_args_is_help=True, add_completion=False
)
bench = typer.Typer(
    cls=_SuiteGroup,
    help="Measure khot beside PyTorch and its peers, each side only after its result has proved right.",
    no_args_is_help=True,
    subcommand_metavar="SUITE|adversarial|list|all|tables",
)
app.add_typer(bench, name="bench")
app.command()(compare)
bench.command("adversarial")(adversarial)
app.command("train")(train_command)

Quick = Annotated[bool, typer.Option("--quick", help="Small inputs, few repeats: to see that it runs.")]
Threads = Annotated[
    list[int] | None,
    typer.Option(min=1, max=1024, help="Threads of both sides; may be repeated.", show_default="1"),
]
Peers = Annotated[bool, typer.Option("--peers/--no-peers", help="Measure other packages too.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Only sides whose name contains this (=NAME: is this); may be repeated."
    ),
]
Output = Annotated[
    Path | None, typer.Option(help="The JSON file to write.", show_default="benchmarks/results/<suite>.json")
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="The folder with the data sets.", show_default="$KHOT_DATA or ~/.cache/khot"),
]
Root = Annotated[Path, typer.Option(help="The checkout that holds README.md, docs and benchmarks.")]


@bench.command("list")
def list_suites() -> None:
    """List the suites with their cases, and the peers that are installed or absent."""
    from khot.bench.listing import lines

    for line in lines():
        typer.echo(line)


@bench.command("all")
def run_all(quick: Quick = False, threads: Threads = None, peers: Peers = True, root: Root = Path()) -> None:
    """Run every suite."""
    for name in suite_names():
        _run(name, quick, threads, peers, None, None, root)


@bench.command("tables")
def tables(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a table is stale.")] = False,
    root: Root = Path(),
) -> None:
    """Write the tables of README.md and docs from the committed results."""
    from khot.bench import markers

    try:
        changed = markers.stale(root) if check else markers.refresh(root)
    except markers.MarkerError as error:
        _fail(str(error))
    for page in changed:
        typer.echo(f"{page.relative_to(root)}: {'stale' if check else 'written'}")
    if check and changed:
        _fail("the tables differ from benchmarks/results; run `khot bench tables`")


def _suite_command(name: str) -> Callable[..., None]:
    def command(
        quick: Quick = False,
        threads: Threads = None,
        peers: Peers = True,
        only: Only = None,
        output: Output = None,
        root: Root = Path(),
    ) -> None:
        _run(name, quick, threads, peers, only, output, root)

    command.__doc__ = f"Run the suite {name} and write its results."
    return command


for _name in suite_names():
    bench.command(_name)(_suite_command(_name))


def _run(
    name: str,
    quick: bool,
    threads: list[int] | None,
    peers: bool,
    only: list[str] | None,
    output: Path | None,
    root: Path,
) -> None:
    from rich.console import Console

    from khot.bench import results, runner, terminal
    from khot.bench.progress import progress

    settings = runner.Settings(
        threads=tuple(dict.fromkeys(threads or [1])),
        quick=quick,
        peers=peers,
        only=tuple(only or ()),
        command=shlex.join(["khot", *sys.argv[1:]]),
    )
    # A partial or quick run must not replace the committed results without being asked to.
    explicit = output
    if output is None and not (quick or only or not peers):
        output = results.results_path(name, root)
    with progress(f"khot bench {name}") as report:
        try:
            document = runner.run(load_suite(name), settings, report)
        except ValueError as error:
            _fail(str(error))
    terminal.show(document, Console())
    if output is None:
        typer.echo("Not written: a quick or partial run is kept only with --output.")
    elif document.absent and explicit is None and output.exists():
        absent = ", ".join(side.name for side in document.absent)
        typer.echo(f"Not written: without {absent} it would replace a fuller run; --output writes it anyway.")
    else:
        results.save(document, output)
        typer.echo(f"Written to {output}.")


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME... | all", show_default=False)] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the reproductions.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing; only write the page over all that was run.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few small runs: to see that it works.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder for runs (JSON) and pictures.", show_default="benchmarks/results/reproduce"
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of PyTorch.")] = 2,
    data_dir: DataDir = None,
    root: Root = Path(),
) -> None:
    """Repeat published experiments; a run that was done is not done again."""
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
        _fail(str(error))
    if output is None and quick:
        output = Path(tempfile.mkdtemp(prefix="khot-reproduce-"))
    errors = [_error_of(reproduction, quick, output, threads, root) for reproduction in chosen]
    _report_reproductions(output, root)
    if any(errors):
        _fail("\n".join(filter(None, errors)))


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

    from khot.bench import terminal
    from khot.bench.progress import progress
    from khot.bench.reproducing import missing_packages, reproduce

    missing = missing_packages(reproduction)
    if missing:
        raise ModuleNotFoundError(f"needs {', '.join(missing)}: pip install {' '.join(missing)}")
    path = ledger_path(reproduction.name, root) if output is None else output / f"{reproduction.name}.json"
    torch.set_num_threads(threads)
    with progress(f"khot reproduce {reproduction.name}") as report:
        ledger = reproduce(reproduction, path, quick=quick, report=report)
    for grid in reproduction.tables(ledger):
        terminal.show_grid(grid, Console())
    picture = path.with_suffix(".svg")
    reproduction.plot(ledger, picture)
    typer.echo(f"Written to {path} and {picture}.")


def _report_reproductions(output: Path | None, root: Path) -> None:
    """The page stands beside the runs, or in report/ if these are the committed ones."""
    from khot.bench.reproduction_page import write_reproduction_page

    folder = ledger_path("any", root).parent if output is None else output
    page = root / "report" / "reproduce.html" if output is None else output / "index.html"
    try:
        written = write_reproduction_page(folder, page)
    except ValueError as error:
        _fail(str(error))
    typer.echo(f"All results: {page.resolve()}" if written else f"No runs in {folder}: khot reproduce all")


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
) -> None:
    """Tell what khot found on this machine, and how to get what it did not."""
    from khot import doctor as check_up

    raise typer.Exit(check_up.run(json=as_json))


@app.command()
def demo() -> None:
    """Show a differentiable top-k at work, in a few seconds."""
    importlib.import_module("khot.demo").main()


def _fail(message: str) -> NoReturn:
    typer.echo(f"khot: {message}", err=True)
    raise typer.Exit(1)
