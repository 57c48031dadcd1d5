"""A table before it is typeset, its Markdown form, and the format of numbers in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Grid", "bytes_text", "markdown", "ratio_text", "seconds_text"]


@dataclass(frozen=True)
class Grid:
    """A caption, a header, rows, notes, and the origin of the numbers.

    The first `text_columns` columns hold text and are left-aligned; the others hold numbers and are
    right-aligned.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    origin: str
    text_columns: int = 1


def markdown(grid: Grid) -> str:
    """A table as Markdown."""
    rule = ("---" if i < grid.text_columns else "--:" for i in range(len(grid.header)))
    lines = [_line(row) for row in (grid.header, rule, *grid.rows)]
    return "\n".join([f"**{grid.caption}**", "", *lines, "", "  \n".join([*grid.notes, grid.origin])]) + "\n"


def ratio_text(ratio: float) -> str:
    """A ratio with three significant digits; a large one as an integer."""
    decimals = 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:.{decimals}f}"


def seconds_text(seconds: float) -> str:
    """A time with three significant digits, in a suitable unit."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def bytes_text(count: int) -> str:
    """A size with three significant digits, in a suitable unit."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count * 1024 >= 999.5 * scale:  # what would round to 1000 of the next smaller unit
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
