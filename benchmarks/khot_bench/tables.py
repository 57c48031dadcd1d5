"""The tables of a benchmark document: what was measured, what failed and what was absent, as it is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from khot.compare.cost.calls import MODES
from khot.compare.cost.case import Case
from khot.compare.cost.side import Mode
from khot.compare.report.grid import Grid, bytes_text, ratio_text, seconds_text
from khot_bench.results import Document, Measurement, SideRecord

__all__ = ["table", "table_names"]

_ABSENT = "not installed"
_PLAIN = 0.01
_BUSY = 0.1
_MOSTLY = 0.5


def table_names(document: Document) -> tuple[str, ...]:
    """The tables a document gives; the first is the main one."""
    suite = document.suite
    counts = (f"{suite}-threads-{count}" for count in document.threads)
    overhead = (f"{suite}-overhead",) if any(case.tiny for case in document.cases) else ()
    return (suite, f"{suite}-short", *counts, *overhead, f"{suite}-memory", f"{suite}-sides")


def table(document: Document, name: str = "") -> Grid:
    """One table of a document.

    Args:
        document: a run.
        name: `<suite>` or `<suite>-threads-N`, ratios at the first or the named thread count;
            `<suite>-short`, three cases and the sides that were measured in all of them;
            `<suite>-overhead`, tiny calls in microseconds; `<suite>-memory`, peak extra memory;
            `<suite>-sides`, versions, errors and notes. The main one by default.
    """
    name = name or document.suite
    if name not in table_names(document):
        raise ValueError(f"unknown table {name!r}; there are {', '.join(table_names(document))}")
    view = name.removeprefix(document.suite).removeprefix("-")
    views: dict[str, Callable[[Document], Grid]] = {
        "short": _short,
        "overhead": _overhead,
        "memory": _memory,
        "sides": _sides,
    }
    if view in views:
        return views[view](document)
    return _ratios(document, int(view.removeprefix("threads-") or document.threads[0]))


class _Cells:
    """Looks up what a cell says: the measurement if there is one, else why there is none."""

    def __init__(self, document: Document, threads: int) -> None:
        self._limit = document.time_limit_seconds
        self._measured = {
            (record.case, record.side, record.mode): record
            for record in document.measurements
            if record.threads == threads
        }
        self._failed = {
            (record.case, record.side, record.mode): record.kind
            for record in document.failures
            if record.threads in (None, threads)
        }

    def text(self, case: Case, side: SideRecord, mode: Mode, show: Callable[[Measurement], str]) -> str:
        measured = self._measured.get((case.name, side.name, mode))
        return self.failure(case, side, mode) if measured is None else show(measured)

    def failure(self, case: Case, side: SideRecord, mode: Mode) -> str:
        kind = self._failed.get((case.name, side.name, mode), "–")
        return {"memory": "out of memory", "time": f"> {self._limit:g} s"}.get(kind, kind)


def _pair(forward: str, both: str) -> str:
    """`forward (forward+backward)`; a reason that holds for both is said once."""
    return forward if forward == both and not forward.lstrip("~")[0].isdigit() else f"{forward} ({both})"


def _doubtful(text: str, measured: Measurement) -> str:
    return f"~{text}" if measured.disturbed > _MOSTLY else text


def _doubts(document: Document, threads: int) -> tuple[str, ...]:
    if any(r.disturbed > _MOSTLY for r in document.measurements if r.threads == threads):
        return ("~: other processes disturbed most rounds of this measurement.",)
    return ()


def _ratios(document: Document, threads: int) -> Grid:
    cases = tuple(case for case in document.cases if not case.tiny) or document.cases
    cells = _Cells(document, threads)

    def cell(side: SideRecord, case: Case) -> str:
        def show(measured: Measurement) -> str:
            own = side.name == document.baseline
            text = seconds_text(measured.seconds) if own else ratio_text(measured.ratio)
            return _doubtful(text, measured)

        forward, both = (cells.text(case, side, mode, show) for mode in MODES)
        return _pair(forward, both)

    rows = [
        (_name(side), _computes(document, side), *(cell(side, case) for case in cases))
        for side in document.sides
    ]
    rows += [(absent.name, "", *(_ABSENT for _ in cases)) for absent in document.absent]
    return Grid(
        caption=f"{document.title}, {_threads(threads)}",
        header=("side", "computes", *(case.label for case in cases)),
        rows=tuple(rows),
        notes=(
            f"Forward (forward+backward), as a multiple of {document.baseline} in the same run; the row of "
            f"{document.baseline} has its times. Median of alternating rounds{_noise(document, threads)}.",
            *_explanations(document),
            *_doubts(document, threads),
        ),
        origin=_origin(document, threads),
        text_columns=2,
    )


def _short(document: Document) -> Grid:
    """The first, the middle and the last case; what is left out is counted."""
    whole = _ratios(document, document.threads[0])
    cases = len(whole.header) - 2
    chosen = sorted({0, cases // 2, cases - 1})
    rows = [(row[0], *(row[2 + i] for i in chosen)) for row in whole.rows]
    kept = tuple(row for row in rows if all(map(_is_measured, row[1:])))
    left_out = len(rows) - len(kept)
    beside = f" The full table has {left_out} more, which cannot do all of these." if left_out else ""
    return Grid(
        caption=whole.caption,
        header=(whole.header[0], *(whole.header[2 + i] for i in chosen)),
        rows=kept,
        notes=(whole.notes[0] + beside, *_doubts(document, document.threads[0])),
        origin=whole.origin,
    )


def _is_measured(cell: str) -> bool:
    """Whether both numbers of `forward (forward+backward)` are there."""
    parts = cell.split(" (")
    return len(parts) == 2 and all(part.lstrip("~")[0].isdigit() for part in parts)


def _overhead(document: Document) -> Grid:
    cases = tuple(case for case in document.cases if case.tiny)
    threads = document.threads[0]
    cells = _Cells(document, threads)

    def cell(side: SideRecord, case: Case, mode: Mode) -> str:
        def show(measured: Measurement) -> str:
            text = seconds_text(measured.seconds)
            extra = (measured.seconds - measured.baseline_seconds) * 1e6
            own = side.name == document.baseline
            return _doubtful(text if own else f"{text} ({extra:+.1f} µs)", measured)

        return cells.text(case, side, mode, show)

    calls: list[tuple[Case, Mode]] = [(case, mode) for case in cases for mode in MODES]
    rows = [(_name(side), *(cell(side, case, mode) for case, mode in calls)) for side in document.sides]
    rows += [(absent.name, *(_ABSENT for _ in calls)) for absent in document.absent]
    return Grid(
        caption="Overhead of one small call",
        header=("side", *(f"{case.label} {mode}" for case, mode in calls)),
        rows=tuple(rows),
        notes=(f"Median time of a call, in brackets the difference to {document.baseline}.",),
        origin=_origin(document, threads),
    )


def _memory(document: Document) -> Grid:
    cases = tuple(case for case in document.cases if not case.tiny)
    cells = _Cells(document, threads=1)
    peaks = {(record.case, record.side, record.mode): record for record in document.memory}

    def text(side: SideRecord, case: Case, mode: Mode) -> str:
        peak = peaks.get((case.name, side.name, mode))
        if peak is None:
            return cells.failure(case, side, mode)
        return f"{peak.extra_bytes / peak.input_bytes:.1f}"

    def cell(side: SideRecord, case: Case) -> str:
        forward, both = (text(side, case, mode) for mode in MODES)
        return _pair(forward, both)

    rows = [(_name(side), *(cell(side, case) for case in cases)) for side in document.sides]
    rows += [(absent.name, *(_ABSENT for _ in cases)) for absent in document.absent]
    return Grid(
        caption="Peak extra memory, as a multiple of the input",
        header=("side", *(f"{case.label} ({bytes_text(case.bytes)})" for case in cases)),
        rows=tuple(rows),
        notes=(
            f"Forward (forward+backward), results included; {document.memory_method}; "
            f"limit {bytes_text(document.memory_limit_bytes)}.",
        ),
        origin=_origin(document, 1),
    )


def _sides(document: Document) -> Grid:
    rows: list[tuple[str, ...]] = []
    for side in document.sides:
        checks = [record for record in document.checks if record.side == side.name]
        reasons = dict.fromkeys(record.reason for record in checks if not record.passed)
        rows.append(
            (
                _name(side),
                f"{side.package} {side.version}",
                _computes(document, side),
                _worst(record.value_error for record in checks),
                _worst(record.sum_error for record in checks),
                _worst(record.gradient_error for record in checks),
                "; ".join(filter(None, [side.note, *reasons])),
            )
        )
    rows += [
        (absent.name, absent.package, "", "", "", "", f"{absent.reason}: {absent.install}")
        for absent in document.absent
    ]
    return Grid(
        caption="What was compared, and how far it is from the truth",
        header=("side", "package", "computes", "value error", "sum error", "gradient error", "note"),
        rows=tuple(rows),
        notes=(
            "Largest errors over the cases, against float64 where the map has a truth; "
            "those of the sum and of the gradient are relative.",
        ),
        origin=_origin(document, document.threads[0]),
        text_columns=7,
    )


def _worst(errors: Iterable[float | None]) -> str:
    known = [error for error in errors if error is not None]
    if not known:
        return "–"
    return f"{max(known):.0%}" if max(known) >= _PLAIN else f"{max(known):.0e}"


def _name(side: SideRecord) -> str:
    return f"**{side.name}**" if side.kind == "khot" else side.name


def _computes(document: Document, side: SideRecord) -> str:
    if side.name == document.baseline:
        return "baseline"
    if side.result != "weights":
        return side.result
    return "same map" if side.same_map else "other map"


def _noise(document: Document, threads: int) -> str:
    own = [r for r in document.measurements if r.side == document.baseline and r.threads == threads]
    if not own:
        return ""
    low, high = statistics.median(r.ratio_low for r in own), statistics.median(r.ratio_high for r in own)
    return f" (the baseline against itself: quartiles {low:.2f} and {high:.2f})"


def _explanations(document: Document) -> tuple[str, ...]:
    """Why something is wrong or an error, once per side and reason."""
    seen = dict.fromkeys(
        (record.side, record.kind, record.reason)
        for record in document.failures
        if record.kind in ("wrong", "error")
    )
    return tuple(f"{side}, {kind}: {reason}." for side, kind, reason in seen)


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _origin(document: Document, threads: int) -> str:
    machine, commit = document.machine, document.commit
    packages = ", ".join(f"{name} {number}" for name, number in document.versions.items())
    kernels = f"{document.kernels} kernels" if document.kernels else "without compiled kernels"
    source = f", commit {commit.id[:9]}{' with changes' if commit.dirty else ''}" if commit else ""
    quick = "; a quick run, not to be quoted" if document.quick else ""
    busy = f"; other processes used {document.others:.1f} cores meanwhile" if document.others >= _BUSY else ""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.ram_gib:g} GiB, {machine.os}; {_threads(threads)}; "
        f"{packages}{source}, {kernels}; {document.created[:10]}{busy}{quick}."
    )
