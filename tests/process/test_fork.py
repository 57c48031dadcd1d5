"""Children of a process that has used kernels on several threads: fork, spawn and forkserver.

A pool of OpenMP threads does not survive a fork, and a child that waits for it waits forever. So each test
has a time limit, which is no measure of speed.
"""

import os
import signal
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

from strategies.every_call import every_call
from strategies.quick_run import costly
from strategies.worker_calls import CallsInWorkers

LIMIT = 100  # seconds
NAMES = list(every_call())


def results_of_workers(names, method, **options):
    """What the workers of a DataLoader found: (name, whether it is what this process found, its process)."""
    torch.set_num_threads(2)
    calls = every_call()
    for name in names:
        calls[name]()  # from here on this process has a pool of threads
    torch.set_num_threads(1)  # as in the workers: torch's own operations differ by rounding
    expected = {name: calls[name]() for name in names}
    data = CallsInWorkers(expected)
    loader = DataLoader(
        data,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        timeout=LIMIT,
        **options,
    )
    with warnings.catch_warnings():
        # Python 3.12 and later warn that forking a process with threads is risky: that risk is the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        return list(loader)


def check(found, names):
    assert [name for name, same, _ in found if not same] == []
    assert [name for name, _, _ in found] == names
    processes = {process for _, _, process in found}
    assert len(processes) == 2
    assert os.getpid() not in processes


@pytest.mark.parametrize("names", [NAMES[::3], costly(NAMES)], ids=["some", "all"])
def test_forked_workers_find_the_same_bits(names):
    check(results_of_workers(names, "fork"), names)


def use_two_threads(_worker):
    torch.set_num_threads(2)


@pytest.mark.usefixtures("library")
def test_forked_workers_that_ask_for_threads_work_alone_instead_of_waiting():
    """A DataLoader gives its workers one thread; a program may ask for more. Of torch itself that is too
    much: an operation that it shares between threads waits forever, so this is of kernels alone."""
    names = ["sigmoid_topk", "sparse_topk", "laplace_topk", "hard_topk", "topk_entries"]
    check(results_of_workers(names, "fork", worker_init_fn=use_two_threads), names)


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_find_the_same_bits(method):
    names = NAMES[::6]
    check(results_of_workers(names, method), names)


def test_a_child_of_a_child(library):
    """Neither may wait for the threads of its parent."""
    torch.set_num_threads(2)
    call = every_call()["sigmoid_topk"]
    expected = call()[0].numpy().tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            grandchild = os.fork()
            if grandchild == 0:
                signal.alarm(LIMIT)
                os._exit(0 if call()[0].numpy().tobytes() == expected else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
            os._exit(code if call()[0].numpy().tobytes() == expected else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
