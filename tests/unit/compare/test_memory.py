import pytest

from khot.compare.cost.case import Case
from khot.compare.cost.failure import Failure
from khot.compare.cost.memory import Limits, Peak, measure
from strategies.known_sides import MEBIBYTE

CASE = Case("2×64", (2, 64), 4)


@pytest.mark.slow
def test_peak_of_a_known_allocation():
    found = measure("strategies.known_sides:allocating", CASE)  # which prints when it is loaded
    for peak in found.values():
        assert isinstance(peak, Peak)
        assert 50 * MEBIBYTE < peak.bytes < 200 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("failing", "error", "RuntimeError: cannot do this"),
        ("greedy", "memory", "allocate"),
        ("sleeping", "time", "longer than 0.5 s"),
        ("missing", "error", "missing"),
    ],
)
def test_failures_are_recorded(name, kind, reason):
    found = measure(f"strategies.known_sides:{name}", CASE, Limits(seconds=0.5, bytes=512 * MEBIBYTE))
    for failure in found.values():
        assert isinstance(failure, Failure)
        assert failure.kind == kind
        assert reason in failure.reason


@pytest.mark.slow
def test_no_gradient_is_a_failure_of_backward_only():
    found = measure("strategies.known_sides:hard", CASE)
    assert isinstance(found["forward"], Peak)
    assert 0 <= found["forward"].bytes < 8 * MEBIBYTE  # a small call
    assert found["forward+backward"] == Failure("no gradient", "NoGradient: hard has no gradient")
