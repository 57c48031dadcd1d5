"""The command `khot bench`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from khot.cli.progress import progress
from khot_bench.commands import fail
from khot_bench.commands.adversarial import adversarial
from khot_bench.commands.compiled import compiled
from khot_bench.commands.distributed import distributed
from khot_bench.commands.export import export
from khot_bench.commands.gpu import gpu
from khot_bench.suites import load_suite, suite_names

__all__ = ["app", "main"]


class _SuiteGroup(TyperGroup):
    """A group whose error for an unknown name lists the names there are."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or an error that names the suites."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not cmd_name.startswith("-") and not ctx.resilient_parsing:
            known = ", ".join(suite_names())
            raise typer.BadParameter(
                f"unknown suite {cmd_name!r}; choose from {known}, adversarial, compiled, distributed, "
                "export, gpu, list, all, tables",
                ctx=ctx,
            )
        return command


app = typer.Typer(
    cls=_SuiteGroup,
    help="Benchmark khot against PyTorch and other packages; results are checked before they are timed.",
    no_args_is_help=True,
    add_completion=False,
    subcommand_metavar="SUITE|adversarial|compiled|distributed|export|gpu|list|all|tables",
)
app.command("adversarial")(adversarial)
app.command("compiled")(compiled)
app.command("distributed")(distributed)
app.command("export")(export)
app.command("gpu")(gpu)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot bench")


Quick = Annotated[bool, typer.Option("--quick", help="Small inputs, few repeats: a quick test.")]
Threads = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        max=1024,
        help="Number of threads for all packages; may be repeated.",
        show_default="the suite's",
    ),
]
Peers = Annotated[bool, typer.Option("--peers/--no-peers", help="Measure other packages too.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Only functions whose name contains this (=NAME: equals); may be repeated."
    ),
]
Output = Annotated[
    Path | None, typer.Option(help="The JSON file to write.", show_default="benchmarks/results/<suite>.json")
]
Root = Annotated[Path, typer.Option(help="The checkout that holds README.md, docs and benchmarks.")]


@app.command("list")
def list_suites() -> None:
    """List the suites with their cases, and which other packages are installed."""
    from khot_bench.listing import lines

    for line in lines():
        typer.echo(line)


@app.command("all")
def run_all(quick: Quick = False, threads: Threads = None, peers: Peers = True, root: Root = Path()) -> None:
    """Run every suite; one that needs another processor is left out, and named."""
    from khot.kernels.loader import status

    for name in suite_names():
        needed = load_suite(name).instruction_set
        if needed not in (None, status().isa):
            typer.echo(
                f"khot bench {name}: left out, it needs {needed} kernels; this machine uses {status().isa}."
            )
            continue
        _run(name, quick, threads, peers, None, None, root)


@app.command("tables")
def tables(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a table is out of date.")
    ] = False,
    root: Root = Path(),
) -> None:
    """Write the tables of README.md and docs from the committed results."""
    from khot_bench import markers

    try:
        changed = markers.stale(root) if check else markers.refresh(root)
    except markers.MarkerError as error:
        fail(str(error))
    for page in changed:
        typer.echo(f"{page.relative_to(root)}: {'stale' if check else 'written'}")
    if check and changed:
        fail("the tables differ from benchmarks/results; run `khot bench tables`")


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
    app.command(_name)(_suite_command(_name))


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

    from khot_bench import results, runner, terminal

    suite = load_suite(name)
    settings = runner.Settings(
        threads=tuple(dict.fromkeys(threads or suite.threads)),
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
            document = runner.run(suite, settings, report)
        except ValueError as error:
            fail(str(error))
    terminal.show(document, Console())
    if output is None:
        typer.echo("Not written: a quick or partial run is kept only with --output.")
    elif document.absent and explicit is None and output.exists():
        absent = ", ".join(side.name for side in document.absent)
        typer.echo(f"Not written: without {absent} it would replace a fuller run; --output writes it anyway.")
    else:
        results.save(document, output)
        typer.echo(f"Written to {output}.")
