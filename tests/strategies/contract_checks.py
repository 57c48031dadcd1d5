"""The checks of a contract as parameters of a test, the costly ones for `make test-full`."""

from collections.abc import Callable, Iterable

import pytest

from khot.testing import Check

TRACING = {"compile", "compiled_jvp", "inductor", "export"}  # the same with the compiled library and without


def parameters(checks: Iterable[Check], left_out: Callable[[Check], bool]) -> list:
    """One parameter for each check, marked `full` where `make test` leaves it out."""
    return [
        pytest.param(check, marks=pytest.mark.full if left_out(check) else (), id=str(check))
        for check in checks
    ]
