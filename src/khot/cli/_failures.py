"""How a command ends if something is wrong: one line for the user, and an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import typer

__all__ = ["FAILED", "REFUSED", "failures_end_with"]

FAILED, REFUSED = 1, 2  # the work could not be done; what was asked for cannot be


@contextlib.contextmanager
def failures_end_with(code: int) -> Generator[None]:
    """Say what went wrong in one line, and end the command with this code; the innermost context decides."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        typer.echo(f"khot: {error}", err=True)
        raise typer.Exit(code) from None
