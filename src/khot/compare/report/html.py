"""Tables as HTML."""

from __future__ import annotations

import html

from khot.compare.report.grid import Grid

__all__ = ["table"]


def table(grid: Grid) -> str:
    """A table with its caption, notes and origin."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in grid.header)
    body = "\n".join(f"<tr>{_cells(row, grid.text_columns)}</tr>" for row in grid.rows)
    notes = "<br>".join(html.escape(note) for note in (*grid.notes, grid.origin) if note)
    return (
        f"<table><caption>{html.escape(grid.caption)}</caption><thead><tr>{head}</tr></thead>\n"
        f'<tbody>{body}</tbody></table>\n<p class="origin">{notes}</p>'
    )


def _cells(row: tuple[str, ...], text_columns: int) -> str:
    kinds = (' class="text"' if i < text_columns else "" for i in range(len(row)))
    return "".join(
        f"<td{kind}>{html.escape(cell.replace('**', ''))}</td>" for kind, cell in zip(kinds, row, strict=True)
    )
