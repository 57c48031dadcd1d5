"""The commands that the laboratory adds to ``khot``, which finds them by the entry points of this project."""

from __future__ import annotations

from typing import NoReturn

import typer

__all__ = ["fail"]


def fail(message: str, code: int = 1) -> NoReturn:
    """End the command with a message; with code 2 if what was asked for does not exist."""
    typer.echo(f"khot: {message}", err=True)
    raise typer.Exit(code)
