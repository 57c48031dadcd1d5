"""The same bits for 1, 2 and 4 threads, forward and backward."""

import pytest
import torch

from khot.relaxations import registry
from strategies.every_call import differing, every_call, functions, relaxations

# Of one long row, torch itself adds up parts, one for each thread: what is made of such sums differs.
LONG = (3, 70_001)
KERNELS = ("laplace", "normal", "sigmoid", "soft_rank", "sparse")


def on_threads(calls, count):
    torch.set_num_threads(count)
    return {name: call() for name, call in calls.items()}


def test_every_call_gives_the_same_bits_on_any_number_of_threads():
    calls = every_call()
    one = on_threads(calls, 1)
    for count in (2, 4):
        assert differing(one, on_threads(calls, count)) == [], count


@pytest.mark.usefixtures("library")
def test_long_rows_of_kernels_give_the_same_bits_on_any_number_of_threads():
    """Rows that threads share."""
    calls = {name: call for name, call in relaxations(*LONG).items() if name.startswith(KERNELS)}
    assert len(calls) > len(KERNELS)
    chosen = ("hard_topk", "straight-through", "masked", "smallest", "bfloat16", "topk_entries", "soft_rank")
    calls |= {name: call for name, call in functions(*LONG).items() if name in chosen}
    one = on_threads(calls, 1)
    for count in (2, 4):
        assert differing(one, on_threads(calls, count)) == [], count


def test_there_is_a_call_of_every_operator():
    assert {name.partition("_topk")[0] for name in relaxations()} == set(registry.names())
