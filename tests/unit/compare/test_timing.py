import pytest

from khot.compare.cost.timing import QUICK, Budget, compare
from khot.compare.cost.waiting import waited_seconds


class FakeClock:
    """Time passes only inside the calls, and the calls are written down."""

    def __init__(self):
        self.now = 0.0
        self.lost = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def waited(self):
        return self.lost

    def call(self, name, seconds):
        def call():
            self.log.append(name)
            self.now += seconds

        return call


def runs(log):
    """The log with repeats of one call folded into one entry."""
    return [name for i, name in enumerate(log) if i == 0 or log[i - 1] != name]


def test_each_sample_of_a_side_follows_one_of_the_baseline():
    clock = FakeClock()
    budget = Budget(sample_seconds=0.3, min_rounds=3, max_rounds=3)
    sides = {"a": clock.call("a", 0.2), "b": clock.call("b", 0.3)}
    compare(clock.call("base", 0.1), sides, budget, clock, clock.waited)
    assert runs(clock.log) == ["base", "a", "b"] + ["base", "a", "base", "b"] * 3


def test_ratios_are_those_of_the_clock():
    clock = FakeClock()
    found = compare(
        clock.call("base", 0.5), {"a": clock.call("a", 1.5)}, Budget(max_rounds=6), clock, clock.waited
    )["a"]
    assert found.ratio == pytest.approx(3)
    assert found.ratio_low == pytest.approx(3)
    assert found.ratio_high == pytest.approx(3)
    assert found.ratio_min == pytest.approx(3)
    assert found.seconds == pytest.approx(1.5)
    assert found.baseline_seconds == pytest.approx(0.5)


def test_a_slow_side_rests_and_a_fast_one_goes_on():
    clock = FakeClock()
    budget = Budget(min_rounds=2, max_rounds=10, side_seconds=1.0)
    found = compare(
        clock.call("base", 0.01),
        {"slow": clock.call("slow", 5.0), "fast": clock.call("fast", 0.01)},
        budget,
        clock,
        clock.waited,
    )
    assert found["slow"].rounds == 2
    assert clock.log.count("slow") == 1 + 1 + 2  # to find the repeats, to warm up once, to measure
    assert found["fast"].rounds == 10


def test_short_calls_are_repeated_within_a_sample():
    clock = FakeClock()
    compare(clock.call("base", 0.001), {"a": clock.call("a", 0.001)}, Budget(0.05, 1, 1), clock, clock.waited)
    assert clock.log.count("a") == 2 + 1 + 50  # to find the repeats, to warm up, to measure


@pytest.mark.parametrize("fails_at", [1, 4])
def test_a_failing_side_is_recorded_and_the_others_go_on(fails_at):
    clock = FakeClock()
    calls = []

    def failing():
        calls.append(None)
        if len(calls) == fails_at:
            raise RuntimeError("broke\nin two lines")
        clock.now += 0.001

    sides = {"bad": failing, "good": clock.call("good", 0.001)}
    found = compare(clock.call("base", 0.001), sides, QUICK, clock, clock.waited)
    assert found["bad"] == "RuntimeError: broke"
    assert found["good"].rounds == QUICK.max_rounds


def test_a_budget_that_measures_nothing_is_refused():
    with pytest.raises(ValueError, match="min_rounds"):
        Budget(min_rounds=0)


def disturbed_side(clock, which):
    """A call of 10 ms, of which some last 5 ms longer because another process has the processor."""
    plain = clock.call("a", 0.01)

    def call():
        plain()
        if which(len(clock.log)):
            clock.now += 0.005
            clock.lost += 0.005

    return call


def test_disturbed_rounds_are_set_aside():
    clock = FakeClock()
    budget = Budget(sample_seconds=0.01, min_rounds=4, max_rounds=40, side_seconds=0.1)
    sides = {"a": disturbed_side(clock, lambda count: count % 3 == 0)}
    found = compare(clock.call("base", 0.01), sides, budget, clock, clock.waited)["a"]
    assert found.disturbed == 0
    assert found.rounds >= budget.min_rounds
    assert found.ratio_high == pytest.approx(1)


def test_where_all_rounds_are_disturbed_they_count_and_it_is_told():
    clock = FakeClock()
    sides = {"a": disturbed_side(clock, lambda count: True)}
    found = compare(clock.call("base", 0.01), sides, QUICK, clock, clock.waited)["a"]
    assert found.disturbed == 1
    assert found.ratio == pytest.approx(1.5)


def test_waiting_only_grows():
    first = waited_seconds()
    assert 0 <= first <= waited_seconds()
