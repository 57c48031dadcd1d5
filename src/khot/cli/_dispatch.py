"""Find a command by name, and run it.

A command is a function of its arguments that returns an exit code or ends with ``SystemExit``. The commands
of khot are `main` in the module with their name; other packages register theirs as entry points in the group
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
    "compare": "compare the operators on this machine: tables and an HTML report",
    "explore": "open an interactive page: scores, k and temperature, operators side by side",
    "train": "train a vision network that selects k tokens, or a plain one",
    "sae": "train sparse autoencoders, and convert them between tools",
    "demo": "see a differentiable top-k at work, in a few seconds",
    "doctor": "show what is installed, what is missing, and how to get it",
}
LABORATORY = {
    "bench": "benchmark khot against PyTorch and other packages",
    "reproduce": "repeat published experiments",
}
GROUP = "khot.commands"

_EXTRA = 'this command needs an extra: pip install "khot[cli]"'
_NO_LABORATORY = (
    "this command belongs to the benchmarks, which are not installed: in a checkout of khot, "
    "`make venv` or pip install -e benchmarks"
)


class _Absent(Exception):
    """The command is not available; the message says how to get it."""


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
    except KeyboardInterrupt:
        sys.stderr.write("khot: stopped\n")
        return 130


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
            "khot COMMAND --help lists the options of a command; khot --version shows the version.",
            'All commands except doctor need pip install "khot[cli]"; bench and reproduce also need a',
            "checkout of the repository, with pip install -e benchmarks.",
            "",
        ]
    )
