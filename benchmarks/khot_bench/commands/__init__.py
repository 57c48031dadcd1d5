"""The commands that the laboratory adds to ``khot``, which finds them by the entry points of this project."""

from __future__ import annotations

from typing import NoReturn

import typer

__all__ = ["fail"]


def fail(message: str) -> NoReturn:
    """End the command with a message."""
    typer.echo(f"khot: {message}", err=True)
    raise typer.Exit(1)
