"""The tables of a comparison, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Callable

from khot.bench.compare.comparison import Cell, Comparison, Record
from khot.bench.grid import Grid, bytes_text, seconds_text

__all__ = ["comparison_grids"]

_OFF = 0.02


def comparison_grids(comparison: Comparison) -> tuple[Grid, ...]:
    """One table per case: a row for each operator and setting."""
    return tuple(_grid(comparison, i, cell) for i, cell in enumerate(comparison.cells))


def _grid(comparison: Comparison, number: int, cell: Cell) -> Grid:
    options = comparison.options
    records = [r for r in comparison.records if (r.n, r.k) == (cell.n, cell.k)]
    settings = {"fixed": "fixed", "matched": "equal sharpness"}

    def row(record: Record) -> tuple[str, ...]:
        name = record.method if record.setting == "fixed" else ""
        if record.missing:
            return (name, settings[record.setting], record.missing, *[""] * 10)
        return (
            name,
            settings[record.setting],
            f"{record.temperature:.3g}",
            _text(record.nccs, "{:.3f}".format),
            _text(record.recall, "{:.3f}".format),
            _text(record.on_topk, "{:.3f}".format),
            _text(record.entropy, "{:.3f}".format)
            + ("" if _as_wanted(record, options.sharpness) else " (!)"),
            _text(record.gradient_norm, "{:.3g}".format),
            _text(record.usable, "{:.0%}".format),
            _text(record.forward, seconds_text),
            _text(record.backward, seconds_text),
            _text(record.forward_bytes, bytes_text),
            _text(record.backward_bytes, bytes_text),
        )

    blind = comparison.chance[number]
    off = any(not _as_wanted(record, options.sharpness) for record in records)
    return Grid(
        caption=f"n = {cell.n}, k = {cell.k}, {cell.rows} rows, {options.dtype}",
        header=(
            "operator",
            "at",
            "temperature",
            "nCCS",
            "recall@k",
            "on top k",
            "entropy",
            "gradient",
            "usable",
            "forward",
            "backward",
            "memory",
            "with backward",
        ),
        rows=tuple(row(record) for record in records),
        notes=(
            f"A blind choice has nCCS {blind:.3f} and recall {cell.k / cell.n:.3f}; torch.softmax takes "
            f"{seconds_text(comparison.softmax[number])}. "
            f"Equal sharpness: mean entropy {options.sharpness:g}.",
            *(("(!): the operator does not come to that entropy.",) if off else ()),
        ),
        origin="",
        text_columns=2,
    )


def _as_wanted(record: Record, sharpness: float) -> bool:
    if record.setting == "fixed" or record.entropy is None:
        return True
    return abs(record.entropy - sharpness) <= _OFF


def _text(value: float | int | None, show: Callable[..., str]) -> str:
    return "–" if value is None else show(value)
