"""Runs a suite: load, probe, check, time, record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

import torch
from torch import Tensor

from khot.compare.cost import memory
from khot.compare.cost.calls import MODES, prepare
from khot.compare.cost.case import Case
from khot.compare.cost.failure import Failure
from khot.compare.cost.memory import Limits
from khot.compare.cost.others import Others
from khot.compare.cost.side import Mode, Side, load_side
from khot.compare.cost.timing import QUICK, Budget, compare
from khot.compare.machine import find_commit, find_machine, find_versions
from khot.kernels.loader import status
from khot_bench import correctness
from khot_bench.peers import PeerAbsent
from khot_bench.results import (
    AbsentSide,
    CheckRecord,
    Document,
    FailureRecord,
    Measurement,
    MemoryRecord,
    SideRecord,
)
from khot_bench.suite import Suite

__all__ = ["Settings", "run"]

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """How a suite is run.

    Args:
        threads: thread counts to measure at, the same for both sides.
        quick: small cases, few repeats and no probes: to see that everything runs.
        peers: whether peers take part.
        only: parts of names of the sides to keep, or `=name` for a whole one; the baseline always stays.
        limits: what one call of a side may take.
        budget: how long to measure; chosen by `quick` if None.
        command: what the user typed, for the record.
    """

    threads: tuple[int, ...] = (1,)
    quick: bool = False
    peers: bool = True
    only: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    budget: Budget | None = None
    command: str = ""


@dataclass
class _Findings:
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    checks: list[CheckRecord] = field(default_factory=list[CheckRecord])
    failures: list[FailureRecord] = field(default_factory=list[FailureRecord])
    memory: list[MemoryRecord] = field(default_factory=list[MemoryRecord])


def run(suite: Suite, settings: Settings | None = None, report: Report | None = None) -> Document:
    """Measure a suite and return its document; a side that fails is recorded, not raised.

    A suite about an instruction set that the kernels do not use here is refused by a `ValueError`.

    Args:
        suite: what to measure.
        settings: how.
        report: told what is being done and which share of the run is done.
    """
    settings = settings or Settings()
    if suite.instruction_set not in (None, status().isa):
        raise ValueError(
            f"the suite {suite.name} needs {suite.instruction_set} kernels, this machine uses {status().isa}"
        )
    if suite.seconds is not None:
        settings = replace(settings, limits=replace(settings.limits, seconds=suite.seconds))
    tell = report or _silent
    others = Others.start()
    tell("loading the sides", 0.0)
    baseline = load_side(suite.baseline)
    sides, absent = _load(suite, settings, baseline)
    cases = suite.quick_cases if settings.quick else suite.cases
    found = _Findings()
    threads_before = torch.get_num_threads()
    try:
        for i, case in enumerate(cases):

            def tell_case(message: str, share: float, case: Case = case, i: int = i) -> None:
                tell(f"{case.label}: {message}", (i + share) / len(cases))

            _run_case(suite, settings, case, baseline, sides, found, tell_case)
    finally:
        torch.set_num_threads(threads_before)
    tell("done", 1.0)

    loaded = (baseline, *sides.values())
    return Document(
        suite=suite.name,
        title=suite.title,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=settings.command,
        quick=settings.quick,
        threads=settings.threads,
        baseline=baseline.name,
        time_limit_seconds=settings.limits.seconds,
        memory_limit_bytes=settings.limits.bytes,
        machine=find_machine(),
        versions=find_versions(tuple(dict.fromkeys(side.package for side in loaded))),
        commit=find_commit(),
        kernels=status().isa,
        others=others.cores(),
        cases=cases,
        sides=tuple(_side_record(side, suite) for side in loaded),
        absent=tuple(absent),
        measurements=tuple(found.measurements),
        checks=tuple(found.checks),
        failures=tuple(found.failures),
        memory=tuple(found.memory),
    )


def _silent(message: str, share: float) -> None:
    pass


def _load(suite: Suite, settings: Settings, baseline: Side) -> tuple[dict[str, Side], list[AbsentSide]]:
    """The sides by source, and those that are absent."""
    sides: dict[str, Side] = {}
    absent: list[AbsentSide] = []
    names: list[str] = []

    def wanted(name: str) -> bool:
        return not settings.only or any(
            name == part[1:] if part.startswith("=") else part.lower() in name.lower()
            for part in settings.only
        )

    for source in (*suite.sides, *(suite.peers if settings.peers else ())):
        try:
            side = load_side(source)
        except PeerAbsent as error:
            names.append(error.name)
            if wanted(error.name):
                absent.append(AbsentSide(error.name, error.package, error.reason, error.install))
            continue
        names.append(side.name)
        if wanted(side.name):
            sides[source] = side
    if settings.only and not sides and not absent:
        wish = " or ".join(settings.only)
        raise ValueError(f"no side of {suite.name} is named like {wish}; there are {', '.join(names)}")
    assert baseline.name not in {side.name for side in sides.values()}
    return sides, absent


def _run_case(
    suite: Suite,
    settings: Settings,
    case: Case,
    baseline: Side,
    sides: dict[str, Side],
    found: _Findings,
    tell: Report,
) -> None:
    able: dict[str, set[Mode]] = {side.name: set(MODES) for side in sides.values()}
    if not settings.quick:
        probed = {suite.baseline: baseline, **sides}
        for i, (source, side) in enumerate(probed.items()):
            tell(f"probing {side.name}", 0.5 * i / len(probed))
            able[side.name] = _probe(source, side, case, settings.limits, found)

    x = case.make()
    tell("computing the truth", 0.5)
    maps = {side.map for side in sides.values() if able[side.name]}
    answers = {name: correctness.true_weights(name, x, case.k) for name in maps}
    for i, threads in enumerate(settings.threads):
        torch.set_num_threads(threads)
        tell(f"checking, {threads} threads", 0.5 + 0.5 * i / len(settings.threads))
        passed = {
            side.name: _check(side, case, threads, answers.get(side.map), able[side.name], found)
            for side in sides.values()
        }
        for mode in MODES:
            tell(f"timing {mode}, {threads} threads", 0.5 + 0.5 * (i + 0.5) / len(settings.threads))
            ready = [side for side in sides.values() if mode in passed[side.name]]
            _time(settings, case, x, baseline, ready, threads, mode, found)


def _probe(source: str, side: Side, case: Case, limits: Limits, found: _Findings) -> set[Mode]:
    able: set[Mode] = set()
    for mode, outcome in memory.measure(source, case, limits).items():
        if isinstance(outcome, Failure):
            found.failures.append(FailureRecord(case.name, side.name, mode, outcome.kind, outcome.reason))
        else:
            able.add(mode)
            found.memory.append(MemoryRecord(case.name, side.name, mode, outcome.bytes, case.bytes))
    return able


def _check(
    side: Side,
    case: Case,
    threads: int,
    answer: Tensor | None,
    able: set[Mode],
    found: _Findings,
) -> set[Mode]:
    """The modes in which the side may be timed."""
    if not able:
        return able
    verdict = correctness.check(side, case, answer, gradient="forward+backward" in able)
    found.checks.append(CheckRecord(case.name, side.name, threads, **dataclasses.asdict(verdict)))
    if verdict.passed and verdict.differentiable:
        return able
    refused = able if not verdict.passed else able & {"forward+backward"}
    kind = "no gradient" if verdict.passed else "wrong"
    reason = f"{side.name} has no gradient" if verdict.passed else verdict.reason
    for mode in MODES:
        if mode in refused:
            found.failures.append(FailureRecord(case.name, side.name, mode, kind, reason, threads))
    return able - refused


def _time(
    settings: Settings,
    case: Case,
    x: Tensor,
    baseline: Side,
    sides: list[Side],
    threads: int,
    mode: Mode,
    found: _Findings,
) -> None:
    budget = settings.budget or (QUICK if settings.quick else Budget())
    calls = {side.name: prepare(side, x, case.k, mode) for side in sides}
    # The baseline against itself: its spread says how far a ratio can be trusted on this machine.
    calls = {baseline.name: prepare(baseline, x, case.k, mode), **calls}
    for name, timing in compare(prepare(baseline, x, case.k, mode), calls, budget).items():
        if isinstance(timing, str):
            found.failures.append(FailureRecord(case.name, name, mode, "error", timing, threads))
        else:
            found.measurements.append(
                Measurement(case.name, name, threads, mode, **dataclasses.asdict(timing))
            )


def _side_record(side: Side, suite: Suite) -> SideRecord:
    same_map = bool(suite.map) and side.map == suite.map
    return SideRecord(side.name, side.package, side.version, side.kind, side.result, same_map, side.note)
