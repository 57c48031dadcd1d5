"""A progress bar where rich is installed and the output is a terminal; silence elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

__all__ = ["progress"]


@contextlib.contextmanager
def progress(title: str) -> Generator[Callable[[str, float], None]]:
    """A function to be told what is being done and which share is done."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        yield lambda message, share: None
        return

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0, title=title)
        yield lambda message, share: bar.update(task, description=message, completed=share)
