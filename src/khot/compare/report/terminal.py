"""A table in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from khot.compare.report.answer import Answer
from khot.compare.report.grid import Grid

__all__ = ["show_answer", "show_grid"]


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


def show_answer(answer: Answer, console: Console) -> None:
    """Print the answer, a line for each winner."""
    console.print(Text(answer.headline, style="bold"))
    for winner in answer.winners:
        line = Text(f"  {winner.title}: ")
        line.append(winner.method, style="bold")
        console.print(line.append(f", {winner.sentence}"))
    console.print()
