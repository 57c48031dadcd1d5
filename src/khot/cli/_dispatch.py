"""Finds the command that was asked for, and runs it.

A command is a function of its arguments that returns an exit code or ends with ``SystemExit``. Those of khot
are `main` of the module of their name; other packages give theirs as entry points of the group
``khot.commands``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import khot

__all__ = ["COMMANDS", "GROUP", "LABORATORY", "main"]

Command = Callable[[Sequence[str]], Any]

COMMANDS = {
    "compare": "measure the operators on this machine: tables, and a page to look at",
    "explore": "play with scores, k and temperature in a page: operators side by side",
    "train": "train a network that selects k tokens, or a plain one",
    "sae": "train sparse autoencoders, and convert them between tools",
    "demo": "a differentiable top-k at work, in a few seconds",
    "doctor": "what khot found on this machine, and how to get what it did not",
}
LABORATORY = {
    "bench": "measure khot beside PyTorch and its peers",
    "reproduce": "repeat published experiments",
}
GROUP = "khot.commands"

_EXTRA = 'this command needs an extra: pip install "khot[cli]"'
_NO_LABORATORY = (
    "this command belongs to the benchmarks, which are not installed: in a checkout of khot, "
    "`make venv` or pip install -e benchmarks"
)


class _Absent(Exception):
    """The command cannot be had here; the message says how it can."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    name, *arguments = given or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write(_help())
        return 0
    if name == "--version":
        sys.stdout.write(f"khot {khot.__version__}\n")
        return 0
    try:
        command = _find(name)
    except _Absent as absent:
        sys.stderr.write(f"khot: {absent}\n")
        return 2
    try:
        return command(arguments) or 0
    except SystemExit as stop:  # how typer and argparse end, well or not
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _find(name: str) -> Command:
    if name in COMMANDS:
        return _loaded(f"khot.cli.{name}", _EXTRA)
    for point in entry_points(group=GROUP, name=name):
        hint = f"{point.module} cannot be imported: install {_distribution(point)} again"
        return _loaded(point.value, hint)
    if name in LABORATORY:  # without metadata too, where its folder is on the path
        return _loaded(f"khot_bench.commands.{name}", _NO_LABORATORY)
    raise _Absent(f"{name!r} is no command; choose from {', '.join(_summaries())}")


def _loaded(source: str, hint: str) -> Command:
    """`main` of the module, or the function that ``module:function`` names."""
    module, _, function = source.partition(":")
    try:
        return getattr(importlib.import_module(module), function or "main")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing in ("typer", "rich"):
            raise _Absent(_EXTRA) from None
        if not f"{module}.".startswith(f"{missing}."):
            raise
        raise _Absent(hint) from None


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "its package"


def _summaries() -> dict[str, str]:
    others = {point.name: f"of {_distribution(point)}" for point in entry_points(group=GROUP)}
    return {**COMMANDS, **others, **LABORATORY}


def _help() -> str:
    lines = [f"  {name:<10} {summary}" for name, summary in _summaries().items()]
    return "\n".join(
        [
            "usage: khot COMMAND [OPTIONS]",
            "",
            "Differentiable and stochastic top-k for PyTorch.",
            "",
            *lines,
            "",
            "khot COMMAND --help lists the options of a command; khot --version. Commands but doctor need an",
            'extra: pip install "khot[cli]"; bench and reproduce the project in benchmarks/ of the checkout.',
            "",
        ]
    )
