"""What of the parameters of a test is in `make test`, and what in `make test-full` alone (marked `full`)."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def costly(*values: Any) -> Any:
    """One set of parameters that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.full)


def in_turn(*axes: Iterable[Any], left_out: Callable[..., bool] = lambda *values: False) -> list:
    """The product of ``axes``, with the values of the last one in turn.

    `make test` takes each combination of the other axes with one value of the last, each time the next one,
    and leaves out what ``left_out`` says; `make test-full` takes the rest.
    """
    lists = [list(axis) for axis in axes]
    chosen: list = []
    for places in itertools.product(*(range(len(values)) for values in lists)):
        values = [values[place] for values, place in zip(lists, places, strict=True)]
        is_next = places[-1] == sum(places[:-1]) % len(lists[-1])
        chosen.append(tuple(values) if is_next and not left_out(*values) else costly(*values))
    return chosen
