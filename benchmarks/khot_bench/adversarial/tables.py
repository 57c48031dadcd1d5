"""The tables of the adversarial matrix."""

from __future__ import annotations

from khot.compare.report.grid import Grid
from khot_bench.adversarial.matrix import ALL_TRAPS, Matrix, Row
from khot_bench.adversarial.reported import REPORTED
from khot_bench.adversarial.traps import TRAPS, Trap

__all__ = ["MATRIX_TABLES", "matrix_table"]

MATRIX_TABLES = (
    "adversarial",
    "adversarial-summary",
    "adversarial-reported",
    "adversarial-traps",
    "adversarial-details",
)


def matrix_table(matrix: Matrix, name: str = "adversarial") -> Grid:
    """One table of the matrix.

    Args:
        matrix: what was found.
        name: `adversarial`, who does what at our own traps; `adversarial-summary`, how many of all traps each
            passes and how it fails; `adversarial-reported`, who does what at those of the peers' tests and
            issues; `adversarial-traps`, what each trap is; `adversarial-details`, why something is not
            passed.
    """
    expected = tuple(trap.name for trap in ALL_TRAPS)
    if matrix.traps != expected:
        raise ValueError("the matrix has other traps than this khot; run `khot bench adversarial`")
    if name == "adversarial":
        return _outcomes(matrix, "Soft top-k at the inputs that break it", TRAPS, 0)
    if name == "adversarial-summary":
        return _summary(matrix)
    if name == "adversarial-reported":
        caption = "At the inputs of the peers' tests and issues"
        return _outcomes(matrix, caption, REPORTED, len(TRAPS))
    if name == "adversarial-traps":
        return _traps(matrix)
    if name == "adversarial-details":
        return _details(matrix)
    raise ValueError(f"unknown table {name!r}; there are {', '.join(MATRIX_TABLES)}")


def _outcomes(matrix: Matrix, caption: str, traps: tuple[Trap, ...], first: int) -> Grid:
    rows: list[tuple[str, ...]] = []
    for row in matrix.rows:
        cells = row.cells[first : first + len(traps)]
        name = f"**{row.name}**" if row.kind == "khot" else row.name
        passed = sum(cell.outcome == "pass" for cell in cells)
        asked = sum(cell.outcome not in ("n/a", "absent") for cell in cells)
        shown = ("✓" if cell.outcome == "pass" else cell.outcome for cell in cells)
        rows.append((name, f"{passed} of {asked}", *shown))
    return Grid(
        caption=caption,
        header=("", "passed", *(trap.name for trap in traps)),
        rows=tuple(rows),
        notes=(
            "✓: what must hold, holds. wrong: it does not. NaN: a NaN or an infinity in the result or its "
            "gradient. error: an exception, more than 20 s, or more than 4 GiB. n/a: the trap asks for what "
            "the operator does not promise. absent: not installed.",
        ),
        origin=matrix.origin,
        text_columns=2 + len(traps),
    )


def _summary(matrix: Matrix) -> Grid:
    """khot's operators in one row, and a row for each peer."""
    own = [row for row in matrix.rows if row.kind == "khot"]
    rows = [_summed(f"**khot, {len(own)} operators**", own)]
    rows += [_summed(row.name, [row]) for row in matrix.rows if row.kind != "khot"]
    return Grid(
        caption="Traps passed, of those that apply",
        header=("", "passed", "NaN", "wrong", "error"),
        rows=tuple(rows),
        notes=("NaN: a NaN or an infinity in the result or its gradient. error: an exception, or too slow.",),
        origin=matrix.origin,
    )


def _summed(name: str, rows: list[Row]) -> tuple[str, ...]:
    outcomes = [cell.outcome for row in rows for cell in row.cells]
    asked = sum(outcome not in ("n/a", "absent") for outcome in outcomes)
    failed = (str(outcomes.count(kind) or "") for kind in ("NaN", "wrong", "error"))
    return (name, f"{outcomes.count('pass')} of {asked}", *failed)


def _traps(matrix: Matrix) -> Grid:
    return Grid(
        caption="The traps",
        header=("trap", "input, and what must hold"),
        rows=tuple((trap.name, trap.about) for trap in ALL_TRAPS),
        notes=(
            "Each demands besides: the shape of the scores, finite weights with a finite gradient, the "
            "declared range and sum. Ranks are held to 1 … n and the sum n(n + 1)/2.",
        ),
        origin=matrix.origin,
        text_columns=2,
    )


def _details(matrix: Matrix) -> Grid:
    rows = [
        (row.name, trap, cell.outcome, cell.detail)
        for row in matrix.rows
        for trap, cell in zip(matrix.traps, row.cells, strict=True)
        if cell.outcome not in ("pass", "absent")
    ]
    return Grid(
        caption="What was found where it is not a ✓",
        header=("", "trap", "outcome", "found"),
        rows=tuple(rows),
        notes=(),
        origin=matrix.origin,
        text_columns=4,
    )
