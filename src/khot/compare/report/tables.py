"""The tables of a comparison, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Callable

from khot.compare.comparison import Cell, Comparison, Record
from khot.compare.report.grid import Grid, bytes_text, seconds_text

__all__ = ["comparison_grids"]

_OFF = 0.02


def comparison_grids(comparison: Comparison) -> tuple[Grid, ...]:
    """Two tables per case, quality and cost: a row for each operator and setting."""
    return tuple(
        grid
        for number, cell in enumerate(comparison.cells)
        for grid in (_quality(comparison, number, cell), _cost(comparison, number, cell))
    )


def _quality(comparison: Comparison, number: int, cell: Cell) -> Grid:
    options = comparison.options
    records = _records(comparison, cell)

    def cells(record: Record) -> tuple[str, ...]:
        mark = "" if _as_wanted(record, options.sharpness) else " (!)"
        return (
            _text(record.temperature, "{:.3g}".format),
            _text(record.nccs, "{:.3f}".format),
            _text(record.recall, "{:.3f}".format),
            _text(record.on_topk, "{:.3f}".format),
            _text(record.entropy, "{:.3f}".format) + mark,
        )

    off = any(not _as_wanted(record, options.sharpness) for record in records)
    return Grid(
        caption=f"Quality at {_case(comparison, cell)}",
        header=("operator", "at", "temperature", "nCCS", "recall@k", "on top k", "entropy"),
        rows=tuple(_row(record, cells(record)) for record in records),
        notes=(
            f"A random choice has nCCS {comparison.chance[number]:.3f} and recall {cell.k / cell.n:.3f}. "
            f"Equal sharpness: mean entropy {options.sharpness:g}.",
            *(("(!): the operator cannot reach that entropy.",) if off else ()),
        ),
        origin="",
        text_columns=2,
    )


def _cost(comparison: Comparison, number: int, cell: Cell) -> Grid:
    def cells(record: Record) -> tuple[str, ...]:
        return (
            _text(record.gradient_norm, "{:.3g}".format),
            _text(record.usable, "{:.0%}".format),
            _text(record.forward, seconds_text),
            _text(record.backward, seconds_text),
            _text(record.forward_bytes, bytes_text),
            _text(record.backward_bytes, bytes_text),
        )

    return Grid(
        caption=f"Gradient and cost at {_case(comparison, cell)}",
        header=("operator", "at", "gradient", "usable", "forward", "backward", "memory", "of both"),
        rows=tuple(_row(record, cells(record)) for record in _records(comparison, cell)),
        notes=(f"torch.softmax takes {seconds_text(comparison.softmax[number])} forward.",),
        origin="",
        text_columns=2,
    )


def _case(comparison: Comparison, cell: Cell) -> str:
    return f"n = {cell.n}, k = {cell.k}, {cell.rows} rows, {comparison.options.dtype}"


def _records(comparison: Comparison, cell: Cell) -> list[Record]:
    return [record for record in comparison.records if (record.n, record.k) == (cell.n, cell.k)]


def _row(record: Record, cells: tuple[str, ...]) -> tuple[str, ...]:
    name = record.method if record.setting == "fixed" else ""
    if record.missing:
        cells = (record.missing, *[""] * (len(cells) - 1))
    return (name, "fixed" if record.setting == "fixed" else "equal", *cells)


def _as_wanted(record: Record, sharpness: float) -> bool:
    if record.setting == "fixed" or record.entropy is None:
        return True
    return abs(record.entropy - sharpness) <= _OFF


def _text(value: float | int | None, show: Callable[..., str]) -> str:
    return "–" if value is None else show(value)
