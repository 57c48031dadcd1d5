"""Measure every operator in every case."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, get_args

import torch
from torch import Tensor

from khot.compare.comparison import Cell, Comparison, Options, Record, Setting
from khot.compare.cost import memory
from khot.compare.cost.case import Case
from khot.compare.cost.failure import first_line
from khot.compare.cost.others import Others
from khot.compare.cost.timing import Budget, Timing, compare
from khot.compare.machine import describe_origin
from khot.compare.quality import (
    Problem,
    chance,
    gradient_health,
    matched_temperature,
    quality,
    seeded,
)
from khot.relaxations.registry import Relaxation, get

__all__ = ["compare_operators", "measure", "why_not"]

Report = Callable[[str, float], None]

_SLOW = 5.0
_QUICK = Budget(sample_seconds=0.002, min_rounds=3, max_rounds=6, side_seconds=0.05)
_FULL = Budget(sample_seconds=0.005, min_rounds=6, max_rounds=20, side_seconds=0.3)


def compare_operators(options: Options, report: Report) -> Comparison:
    """Measure every operator in every case; `report` is called with the current work and the share done."""
    cells, others = options.cells(), Others.start()
    specs = {name: seeded(get(name), options.seed) for name in options.methods}
    records: list[Record] = []
    blind: list[float] = []
    softmax: list[float] = []
    for number, cell in enumerate(cells):

        def say(what: str, share: float, number: int = number, cell: Cell = cell) -> None:
            report(f"n = {cell.n}, k = {cell.k}: {what}", (number + share) / len(cells))

        dtype = getattr(torch, options.dtype)
        problem = Problem.make(cell.rows, cell.n, cell.k, dtype, options.device, options.seed)
        blind.append(chance(problem, options.seed))
        found: list[Record] = []
        for i, (name, spec) in enumerate(specs.items()):
            say(name, 0.6 * i / len(specs))
            settings: tuple[Setting, ...] = get_args(Setting)
            found += [measure(spec, problem, setting, options) for setting in settings]
        say("time", 0.6)
        found, seconds = _timed(found, specs, problem, options)
        softmax.append(seconds)
        if options.device == "cpu" and (number == len(cells) - 1 or not options.quick):
            say("memory", 0.8)
            found = _with_memory(found, cell, options)
        records += found
    report("done", 1.0)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    origin, busy = describe_origin(), others.cores()
    return Comparison(created, origin, options, cells, tuple(records), tuple(blind), tuple(softmax), busy)


def why_not(spec: Relaxation, n: int) -> str:
    """Why an operator is not run in a case; empty if it is run."""
    return f"n is above {spec.max_n}" if n > spec.max_n else ""


def measure(spec: Relaxation, problem: Problem, setting: Setting, options: Options) -> Record:
    """Quality and gradient of an operator, or why there are none: any error is recorded as the reason."""
    n, k = problem.scores.shape[-1], problem.k
    record = Record(spec.name, n, k, setting, missing=why_not(spec, n))
    if record.missing:
        return record
    try:
        start = time.perf_counter()
        with torch.no_grad():
            spec.weights(problem.scores[:1], k)
        if (time.perf_counter() - start) * problem.scores.shape[0] > _SLOW:
            return dataclasses.replace(record, missing=f"slower than {_SLOW:g} s")
        temperature = options.temperature
        if setting == "matched":
            matched = matched_temperature(spec, problem, options.sharpness)
            if matched is None:
                return dataclasses.replace(record, missing=f"entropy {options.sharpness:g} is not reached")
            temperature = matched
        found = quality(spec, problem, temperature)
        gradient = gradient_health(_call(spec, k, temperature), problem.scores, options.seed)
    except Exception as error:
        return dataclasses.replace(record, missing=f"{type(error).__name__}: {first_line(error)}")
    return dataclasses.replace(
        record,
        temperature=temperature,
        **dataclasses.asdict(found),
        gradient_norm=gradient.norm,
        usable=gradient.usable,
    )


def _call(spec: Relaxation, k: int, temperature: float) -> Callable[[Tensor], Tensor]:
    return lambda x: spec.weights(x, k, temperature=temperature)


def _timed(
    records: list[Record], specs: Mapping[str, Relaxation], problem: Problem, options: Options
) -> tuple[list[Record], float]:
    """The records with their times, and the time of `torch.softmax`."""
    budget = _QUICK if options.quick else _FULL
    x = problem.scores
    wait: Callable[[], Any] = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    leaf, incoming = x.detach().clone().requires_grad_(), torch.randn_like(x)

    def forward(weights: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            with torch.no_grad():
                weights(x)
            wait()

        return call

    def backward(weights: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        result: list[Tensor] = []  # one forward pass, differentiated again and again

        def call() -> None:
            if not result:
                result.append(weights(leaf))
            torch.autograd.grad(result[0], leaf, incoming, retain_graph=True)
            wait()

        return call

    def softmax(scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1)

    calls = {
        str(i): _call(specs[record.method], problem.k, record.temperature)
        for i, record in enumerate(records)
        if record.temperature is not None
    }
    one_way = compare(forward(softmax), {name: forward(call) for name, call in calls.items()}, budget)
    way_back = compare(backward(softmax), {name: backward(call) for name, call in calls.items()}, budget)
    timed = list(records)
    baseline = 0.0
    for name in calls:
        first, second = one_way[name], way_back[name]
        if isinstance(first, Timing) and isinstance(second, Timing):
            timed[int(name)] = dataclasses.replace(
                records[int(name)], forward=first.seconds_min, backward=second.seconds_min
            )
            baseline = first.seconds_min / first.ratio_min
    return timed, baseline


def _with_memory(records: list[Record], cell: Cell, options: Options) -> list[Record]:
    """The records with the memory of a call at temperature 1, each operator in a process of its own."""
    case = Case(f"{cell.rows}×{cell.n}", (cell.rows, cell.n), cell.k, options.dtype, seed=options.seed)
    methods = [record.method for record in records if record.setting == "fixed" and not record.missing]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {
            method: pool.submit(memory.measure, f"khot.compare.cost.side:relaxation:{method}", case)
            for method in methods
        }
        peaks = {method: done.result() for method, done in running.items()}

    def with_peak(record: Record) -> Record:
        found = peaks.get(record.method) if not record.missing else None
        if found is None:
            return record
        forward, both = (
            peak.bytes if isinstance(peak, memory.Peak) else None
            for peak in (found["forward"], found["forward+backward"])
        )
        return dataclasses.replace(record, forward_bytes=forward, backward_bytes=both)

    return [with_peak(record) for record in records]
