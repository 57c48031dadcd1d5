"""Shows the tables of a run in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from khot.bench.grid import Grid
from khot.bench.results import Document
from khot.bench.tables import table, table_names

__all__ = ["show", "show_grid"]


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


def show_grid(grid: Grid, console: Console) -> None:
    """Print one table."""
    drawn = Table(
        title=Text(grid.caption),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    for i, name in enumerate(grid.header):
        # The first column names the row: two that are cut short could look the same.
        drawn.add_column(Text(name), justify="left" if i < grid.text_columns else "right", no_wrap=i == 0)
    for row in grid.rows:
        # Text, because a side's name or an error message may look like markup.
        ours = row[0].startswith("**")
        drawn.add_row(*(Text(cell.strip("*"), style="bold" if ours else "") for cell in row))
    console.print(drawn)
    for line in grid.notes:
        console.print(Text(line, style="dim"))
    console.print()
