"""Python threads may call the same and different operators at once, and change the number of threads."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from strategies.every_call import differing, every_call

CALLS = every_call()


def test_threads_call_the_same_and_different_operators_at_once():
    """Each name twice, in random order: the results are those of one thread."""
    torch.set_num_threads(2)
    expected = {name: call() for name, call in CALLS.items()}
    names = random.Random(0).sample([*CALLS] * 2, 2 * len(CALLS))
    with ThreadPoolExecutor(4) as pool:
        for name, found in zip(names, pool.map(lambda name: CALLS[name](), names), strict=True):
            assert differing({name: expected[name]}, {name: found}) == []


def test_the_number_of_threads_may_change_between_calls_and_while_others_call():
    expected = {name: call() for name, call in CALLS.items()}
    stop = threading.Event()

    def change():
        numbers = random.Random(0)
        while not stop.wait(0.001):
            torch.set_num_threads(numbers.randint(1, 4))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        found = {}
        for number, (name, call) in enumerate(CALLS.items()):
            torch.set_num_threads(1 + number % 4)
            found[name] = call()
    finally:
        stop.set()
        changing.join()
    assert differing(expected, found) == []


FIRST_CALL = """
import threading, torch, khot
x = torch.randn(64, 300, generator=torch.Generator().manual_seed(0))
start, found = threading.Barrier(8), []
def first(method):
    start.wait()
    found.append((method, khot.topk(x, 5, method)))
methods = ["sigmoid", "sparse", "laplace", "normal"] * 2
threads = [threading.Thread(target=first, args=(method,)) for method in methods]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 8
assert all(torch.equal(y, khot.topk(x, 5, method)) for method, y in found)
"""


def test_the_first_call_may_come_from_several_threads_at_once(run_python):
    """The library is found, loaded and its instruction set chosen by the first call."""
    run_python(FIRST_CALL)
