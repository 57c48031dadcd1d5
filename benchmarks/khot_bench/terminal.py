"""Shows the tables of a run in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from khot.compare.report.terminal import show_grid
from khot_bench.results import Document
from khot_bench.tables import table, table_names

__all__ = ["show"]


def show(document: Document, console: Console) -> None:
    """Print ratios, overhead and memory, then notes on the sides, the absent ones, and the origin."""
    for name in table_names(document)[1:]:
        grid = table(document, name)
        if name.endswith("-sides") or (name.endswith("-memory") and not document.memory):
            continue
        show_grid(grid, console)
    notes = {side.name: side.note for side in document.sides if side.note}
    notes |= {side.name: f"{side.reason}; install with {side.install}" for side in document.absent}
    for name, note in notes.items():
        console.print(Text(f"{name}: {note}", style="dim"))
    console.print(Text(table(document).origin, style="dim"))
