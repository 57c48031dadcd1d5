"""Ratios of running times, from calls that alternate with the baseline in one process.

Each round times `baseline, side, baseline, side, …`, so a machine that slows down for a while slows both
halves of each pair. Rounds in which this process had to wait for a processor are set aside. If too few rounds
are left, all count, and the share of disturbed ones is reported. The result is the median of the ratios over
rounds with its quartiles, and the ratio of the shortest times. Nothing is asserted about times.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from khot.compare.cost.failure import first_line
from khot.compare.cost.waiting import waited_seconds

__all__ = ["QUICK", "Budget", "Timing", "compare"]

Call = Callable[[], object]
Clock = Callable[[], float]

_WARM_BELOW = 0.05
_SLOW = 0.5
_DISTURBED = 0.05
_MOST_CALLS = 10_000


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Args:
        sample_seconds: calls are repeated within a sample until it lasts about this long.
        min_rounds: the smallest number of samples of a side; half as many for a slow side, but at least two.
        max_rounds: the largest number of samples of a side.
        side_seconds: a side that has used this much time stops after `min_rounds`; a side that has used three
            times as much counts as slow.
    """

    sample_seconds: float = 0.005
    min_rounds: int = 6
    max_rounds: int = 60
    side_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a budget that measures nothing."""
        if not 1 <= self.min_rounds <= self.max_rounds:
            raise ValueError(
                f"1 ≤ min_rounds ≤ max_rounds must hold; got {self.min_rounds} and {self.max_rounds}"
            )

    @property
    def few_rounds(self) -> int:
        """How many rounds are enough for a slow side."""
        return max(2, self.min_rounds // 2)

    def enough(self, undisturbed: int, rounds: int, spent: float) -> bool:
        """Whether a side has been sampled often enough, given its cost."""
        if spent >= 3 * self.side_seconds:
            return rounds >= self.few_rounds
        return undisturbed >= self.min_rounds and spent >= self.side_seconds


QUICK = Budget(sample_seconds=0.001, min_rounds=3, max_rounds=5, side_seconds=0.05)
"""Enough to see that everything runs, not to quote."""


@dataclass(frozen=True)
class Timing:
    """The measured times of one side.

    Args:
        ratio: median over the rounds of side/baseline.
        ratio_low: its lower quartile.
        ratio_high: its upper quartile.
        ratio_min: shortest time of the side / shortest time of the baseline.
        seconds: median time of one call.
        seconds_min: shortest time of one call.
        baseline_seconds: median time of one call of the baseline in the same rounds.
        rounds: the number of samples.
        disturbed: the share of samples that had to wait for a processor.
    """

    ratio: float
    ratio_low: float
    ratio_high: float
    ratio_min: float
    seconds: float
    seconds_min: float
    baseline_seconds: float
    rounds: int
    disturbed: float


@dataclass(frozen=True)
class _Round:
    side: float
    baseline: float
    disturbed: bool


@dataclass
class _Side:
    call: Call
    repeats: int = 1
    spent: float = 0.0
    rounds: list[_Round] = field(default_factory=list[_Round])

    def undisturbed(self) -> list[_Round]:
        return [done for done in self.rounds if not done.disturbed]


def compare(
    baseline: Call,
    sides: Mapping[str, Call],
    budget: Budget | None = None,
    clock: Clock = time.perf_counter,
    waited: Clock = waited_seconds,
) -> dict[str, Timing | str]:
    """Time every side against the baseline; a side that raises gets the reason instead of a timing.

    Args:
        baseline: the call that each side is compared with.
        sides: calls by name.
        budget: how long to measure.
        clock: returns the time in seconds.
        waited: returns how many seconds this process has waited for a processor.
    """
    budget = budget or Budget()
    reference = _Side(baseline)
    reference.repeats = _repeats(reference.call, budget, clock)
    runs: dict[str, _Side] = {}
    outcome: dict[str, Timing | str] = {}
    for name, call in sides.items():
        run = _Side(call)
        runs[name] = run
        try:
            run.repeats = _repeats(call, budget, clock)
        except Exception as error:
            outcome[name] = f"{type(error).__name__}: {first_line(error)}"
            del runs[name]

    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(budget.max_rounds):
            for name, run in list(runs.items()):
                if budget.enough(len(run.undisturbed()), len(run.rounds), run.spent):
                    continue
                try:
                    base, base_disturbed = _sample(reference, clock, waited)
                    side, side_disturbed = _sample(run, clock, waited)
                    run.rounds.append(_Round(side, base, base_disturbed or side_disturbed))
                except Exception as error:
                    outcome[name] = f"{type(error).__name__}: {first_line(error)}"
                    del runs[name]
            if collecting:
                gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    outcome.update({name: _summary(run, budget) for name, run in runs.items()})
    return {name: outcome[name] for name in sides}


def _repeats(call: Call, budget: Budget, clock: Clock) -> int:
    """How many calls fill a sample; the calls made to find out are the warm-up."""
    once = 0.0
    for _ in range(2):
        start = clock()
        call()
        once = clock() - start
        if once >= _SLOW:
            break  # so slow a call is not sped up by a second warm-up
    if once <= 0:
        return _MOST_CALLS
    return min(_MOST_CALLS, max(1, round(budget.sample_seconds / once)))


def _sample(run: _Side, clock: Clock, waited: Clock) -> tuple[float, bool]:
    """Seconds per call, averaged over one sample, and whether it was disturbed."""
    entered = clock()
    if not run.rounds or run.rounds[-1].side < _WARM_BELOW:
        run.call()  # brings the caches back after the other side; too dear for slow calls
    waited_before = waited()
    start = clock()
    for _ in range(run.repeats):
        run.call()
    end = clock()
    disturbed = waited() - waited_before > _DISTURBED * (end - start)
    run.spent += end - entered
    return (end - start) / run.repeats, disturbed


def _summary(run: _Side, budget: Budget) -> Timing:
    clean = run.undisturbed()
    used = clean if len(clean) >= budget.few_rounds else run.rounds
    ratios = [done.side / done.baseline for done in used]
    low, middle, high = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    return Timing(
        ratio=middle,
        ratio_low=low,
        ratio_high=high,
        ratio_min=min(done.side for done in used) / min(done.baseline for done in used),
        seconds=statistics.median(done.side for done in used),
        seconds_min=min(done.side for done in used),
        baseline_seconds=statistics.median(done.baseline for done in used),
        rounds=len(used),
        disturbed=sum(done.disturbed for done in used) / len(used),
    )
