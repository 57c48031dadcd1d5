"""The progress of a command: a bar in a terminal, an occasional line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator

__all__ = ["progress"]

_SECONDS = 10.0

Report = Callable[[str, float], None]


@contextlib.contextmanager
def progress(title: str) -> Generator[Report]:
    """A function to call with the current work and the share that is done; it writes to stderr."""
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, title=title)
        yield lambda message, share: bar.update(task, description=message, completed=share)


def _lines(title: str, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> Report:
    """Writes the first report, the last, and between them one each ``seconds``."""
    due = -float("inf")

    def report(message: str, share: float) -> None:
        nonlocal due
        if clock() < due and share < 1:
            return
        due = clock() + seconds
        sys.stderr.write(f"{title}: {share:.0%}, {message}\n")
        sys.stderr.flush()

    return report
