"""The same bits for 1, 2 and 4 threads, forward and backward, from kernels; the rest up to rounding."""

import pytest
import torch

from khot.relaxations import registry
from strategies.every_call import KERNELS, by_kernels, differing, every_call, functions, relaxations

LONG = (3, 70_001)


def on_threads(calls, count):
    torch.set_num_threads(count)
    return {name: call() for name, call in calls.items()}


@pytest.mark.full
@pytest.mark.usefixtures("library")
def test_kernels_and_samples_have_the_same_bits_on_any_number_of_threads_and_the_rest_is_close():
    calls = every_call()
    one = on_threads(calls, 1)
    for count in (2, 4):
        assert differing(one, on_threads(calls, count)) == [], count


@pytest.mark.usefixtures("library")
def test_long_rows_that_threads_share_have_the_same_bits():
    calls = {
        name: call for name, call in {**relaxations(*LONG), **functions(*LONG)}.items() if by_kernels(name)
    }
    assert len(calls) == len(KERNELS) + 2  # sparse, with two norms
    one = on_threads(calls, 1)
    for count in (2, 4):
        assert differing(one, on_threads(calls, count)) == [], count


@pytest.mark.full
def test_a_call_repeated_has_the_same_bits():
    calls = every_call(8, 64)
    torch.set_num_threads(2)
    first, again = ({name: call() for name, call in calls.items()} for _ in range(2))
    assert differing(first, again, same_threads=True) == []


def test_there_is_a_call_of_every_operator():
    assert {name.partition("_topk")[0] for name in relaxations()} == set(registry.names())
