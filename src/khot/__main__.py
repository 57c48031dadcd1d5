"""The command line: ``khot`` and ``python -m khot``.

`doctor` must work on any machine, so it needs no more than torch and numpy. The other commands live in
`khot.cli`, which needs the extra ``khot[cli]``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

__all__ = ["main"]

HINT = 'khot: this command needs an extra: pip install "khot[cli]"'


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["doctor"]:
        return _doctor(arguments[1:])
    try:
        app = importlib.import_module("khot.cli").app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        return _without_cli(arguments)
    try:
        app(args=arguments or ["--help"], prog_name="khot")
    except SystemExit as stop:  # how typer ends, well or not
        return _exit_code(stop)
    return 0


def _without_cli(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] not in ("-h", "--help"):
        print(HINT, file=sys.stderr)
        return 2
    _plain_parser().print_help()
    return 0


def _plain_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="khot",
        usage="khot doctor [--json]",
        description="Differentiable and stochastic top-k for PyTorch.",
        epilog='The other commands need an extra: pip install "khot[cli]"',
    )
    commands = parser.add_subparsers(title="commands", metavar="")
    commands.add_parser("doctor", help="what khot found on this machine, and how to get what it did not")
    return parser


def _doctor(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="khot doctor",
        description="Tell what khot found on this machine, and how to get what it did not.",
    )
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed its help or its error
        return _exit_code(stop)
    from khot import doctor

    return doctor.run(json=options.json)


def _exit_code(stop: SystemExit) -> int:
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


if __name__ == "__main__":
    sys.exit(main())
