"""The answer of a comparison in a few sentences: what to use for this n and k on this machine, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from khot.compare.comparison import Cell, Comparison, Record
from khot.compare.report.grid import bytes_text, ratio_text, seconds_text
from khot.relaxations import registry

__all__ = ["Answer", "Winner", "answer"]

_NEAR = 0.1  # in weight on the top k: what is nearer than this may be decided by time


@dataclass(frozen=True)
class Winner:
    """The winner in one respect, and its number, in a sentence."""

    title: str
    method: str
    sentence: str


@dataclass(frozen=True)
class Answer:
    """The answer for one case: a headline and the winners; no winners if nothing could be measured."""

    headline: str
    winners: tuple[Winner, ...]


def answer(comparison: Comparison, number: int = -1) -> Answer:
    """The answer for one case, by default the largest.

    Operators are judged at equal sharpness, so that differences come from the operator and not from its
    temperature. Random operators are left out: their quality is that of one sample.
    """
    cell, softmax = comparison.cells[number], comparison.softmax[number]
    records = [record for record in comparison.records if _judged(record, cell)]
    where = f"For n = {cell.n}, k = {cell.k} on this machine"
    if not records:
        return Answer(f"{where} nothing could be measured at equal sharpness.", ())
    start = _start_with(records)
    winners = [Winner("start with", start.method, _why(start, softmax))]
    winners += [
        winner
        for winner in (
            _least(
                records, "fastest", _seconds, lambda r: f"{seconds_text(_seconds(r))} forward and backward"
            ),
            _most(
                records,
                "closest to the exact selection",
                lambda r: r.on_topk,
                lambda r: f"{r.on_topk:.0%} of the weight on the true top k",
            ),
            _most(
                records,
                "separates the k vectors best",
                lambda r: r.nccs,
                lambda r: f"its blends have cosine {r.nccs:.2f} with the true vectors",
            ),
            _most(
                records,
                "gradient for most scores",
                lambda r: r.usable,
                lambda r: f"{r.usable:.0%} of the scores get a usable one",
            ),
            _least(
                [record for record in comparison.records if _measured_memory(record, cell)],
                "least memory",
                lambda r: float(r.backward_bytes or 0),
                lambda r: f"{bytes_text(r.backward_bytes or 0)} in addition to the input",
            ),
        )
        if winner is not None
    ]
    return Answer(f"{where}: start with {start.method}.", tuple(winners))


def _judged(record: Record, cell: Cell) -> bool:
    return (
        (record.n, record.k, record.setting) == (cell.n, cell.k, "matched")
        and not record.missing
        and record.on_topk is not None
        and record.forward is not None
        and record.backward is not None
        and record.method not in ("gumbel", "perturbed")
    )


def _measured_memory(record: Record, cell: Cell) -> bool:
    return (record.n, record.k, record.setting) == (cell.n, cell.k, "fixed") and bool(record.backward_bytes)


def _seconds(record: Record) -> float:
    return (record.forward or 0.0) + (record.backward or 0.0)


def _quality(record: Record) -> float:
    return record.on_topk or 0.0


def _start_with(records: list[Record]) -> Record:
    """The fastest of those with weights in [0, 1] that are nearly as near to the exact selection as any."""
    sound = [record for record in records if _bounded(record)] or records
    best = max(map(_quality, sound))
    return min((record for record in sound if _quality(record) >= best - _NEAR), key=_seconds)


def _bounded(record: Record) -> bool:
    spec = registry.specs().get(record.method)
    return spec is None or spec.bounded


def _why(start: Record, softmax: float) -> str:
    ratio = ratio_text((start.forward or 0.0) / softmax) if softmax else "?"
    share = f"{_quality(start):.0%} of their sum on the true top k"
    return f"weights in [0, 1], {share}, {ratio} times torch.softmax forward"


def _most(
    records: list[Record], title: str, value: Callable[[Record], float | None], say: Callable[[Record], str]
) -> Winner | None:
    found = [record for record in records if value(record) is not None]
    if not found:
        return None
    first = max(found, key=lambda record: value(record) or 0.0)
    return Winner(title, first.method, say(first))


def _least(
    records: list[Record], title: str, value: Callable[[Record], float], say: Callable[[Record], str]
) -> Winner | None:
    return None if not records else Winner(title, (first := min(records, key=value)).method, say(first))
