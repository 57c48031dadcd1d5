"""The command `khot compare`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import torch
import typer
from rich.console import Console

from khot.cli._failures import FAILED
from khot.cli.progress import progress
from khot.compare.comparison import Options
from khot.compare.report.answer import answer
from khot.compare.report.page import check_plotly, page
from khot.compare.report.tables import comparison_grids
from khot.compare.report.terminal import show_answer, show_grid
from khot.compare.run import compare_operators
from khot.files.whole import check_writable, write_json, write_text
from khot.relaxations import registry

__all__ = ["app", "compare", "devices", "main"]

app = typer.Typer(add_completion=False)

DTYPES = ("float32", "float64", "float16", "bfloat16")
_N, _QUICK_N = (64, 1000, 4000), (64, 1000)
_K, _QUICK_K = (8, 64), (8,)


def devices() -> tuple[str, ...]:
    """The devices of this machine."""
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot compare")


@app.command()
def compare(
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            metavar="NAME",
            help="Operators: repeat the option, or use commas.",
            show_default="all",
        ),
    ] = None,
    n: Annotated[
        list[str] | None,
        typer.Option("--n", metavar="N", help="Row lengths, in the same way.", show_default="64,1000,4000"),
    ] = None,
    k: Annotated[
        list[str] | None,
        typer.Option("--k", metavar="K", help="How many to select, in the same way.", show_default="8,64"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda if there is a GPU.")] = "cpu",
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(DTYPES)}.")] = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scores and of all noise.")] = 0,
    temperature: Annotated[float, typer.Option(help="The fixed temperature.")] = 1.0,
    sharpness: Annotated[float, typer.Option(help="Mean entropy to match, from 0 to 1.")] = 0.3,
    output: Annotated[Path, typer.Option(help="The folder for index.html and compare.json.")] = Path(
        "report"
    ),
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Number of PyTorch threads.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Only n = 64 and 1000, k = 8, few repeats.")] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Print only the answer; the tables are in the report.")
    ] = False,
) -> None:
    """Compare operators by quality, gradient, time and memory: tables and an HTML report."""
    options = Options(
        methods=_chosen("--methods", methods, tuple(registry.names())),
        n=_numbers("--n", n, _QUICK_N if quick else _N, 2),
        k=_numbers("--k", k, _QUICK_K if quick else _K, 1),
        device=_one_of("--device", device, devices()),
        dtype=_one_of("--dtype", dtype, DTYPES),
        seed=seed,
        temperature=temperature,
        sharpness=sharpness,
        threads=threads,
        quick=quick,
        command=shlex.join(["khot", *sys.argv[1:]]),
    )
    if not options.cells():
        _refuse(
            "--k", f"must be below n for one n at least; got k = {_list(options.k)}, n = {_list(options.n)}"
        )
    if not 0 < temperature < float("inf"):
        _refuse("--temperature", f"must be above 0 and finite; got {temperature:g}")
    if not 0 < sharpness < 1:
        _refuse("--sharpness", f"must be between 0 and 1; got {sharpness:g}")
    _check_writable(output)
    try:
        check_plotly()
    except ModuleNotFoundError as error:
        typer.echo(f"khot: {error}", err=True)
        raise typer.Exit(FAILED) from None
    torch.set_num_threads(threads)
    with progress("khot compare") as report:
        comparison = compare_operators(options, report)
    console = Console()
    if not brief:
        for grid in comparison_grids(comparison):
            show_grid(grid, console)
    show_answer(answer(comparison), console)
    try:
        write_json(dataclasses.asdict(comparison), output / "compare.json")
        write_text(page(comparison), output / "index.html")
    except OSError as error:
        typer.echo(f"khot: {error}", err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(
        f"The report is {(output / 'index.html').resolve()}; its numbers are in compare.json beside it."
    )


def _split(values: list[str] | None) -> list[str]:
    return list(
        dict.fromkeys(part.strip() for value in values or () for part in value.split(",") if part.strip())
    )


def _chosen(option: str, values: list[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = _split(values)
    return tuple(_one_of(option, name, known) for name in chosen) or known


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        _refuse(option, f"{value!r} is not known; choose from {', '.join(known)}")
    return value


def _numbers(option: str, values: list[str] | None, default: tuple[int, ...], least: int) -> tuple[int, ...]:
    numbers: list[int] = []
    for text in _split(values):
        if not text.isdecimal() or int(text) < least:
            _refuse(option, f"must be whole numbers of at least {least}; got {text!r}")
        numbers.append(int(text))
    return tuple(numbers) or default


def _check_writable(output: Path) -> None:
    """Fail now rather than after the measurement."""
    try:
        check_writable("compare", "output", output)
    except OSError as error:
        _refuse("--output", str(error).removeprefix("compare: output "))


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _refuse(option: str, message: str) -> NoReturn:
    raise typer.BadParameter(message, param_hint=option)
