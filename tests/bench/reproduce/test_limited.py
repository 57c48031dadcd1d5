"""A call that takes too much processor time is stopped, also in compiled code; others answer as usual."""

import os

import numpy as np
import pytest

from khot_bench.reproduce.limited import within


def busy(size):
    """One call that no exception can interrupt."""
    return np.sort(np.random.default_rng(0).random(size)).sum()


def fails():
    raise ValueError("no such column")


def test_an_answer_and_none_in_time():
    assert within(60, 4, busy, 10) == busy(10)
    assert within(60, 4, os.getpid) != os.getpid()
    assert within(0, 4, busy, 60_000_000) is None
    assert within(60, 1, np.zeros, 1 << 28) is None


def test_what_goes_wrong_is_told():
    with pytest.raises(RuntimeError, match="ValueError: no such column"):
        within(60, 4, fails)
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        within(60, 4, os._exit, 3)
