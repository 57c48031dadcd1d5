"""A group of threads in the place of processes: the same calls and the same numbers, at the price of none."""

import threading

import torch

from khot.parallel._group import Group


class _Meeting:
    """Where threads bring a value each and take all of them away."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=60)
        self.values = [None] * size


class ThreadGroup(Group):
    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, len(meeting.values)
        self.calls = []

    def _all(self, value):
        self.meeting.values[self.rank] = value
        self.meeting.barrier.wait()
        found = list(self.meeting.values)
        self.meeting.barrier.wait()
        return found

    def total(self, local):
        self.calls.append(("total", tuple(local.shape)))
        return local.copy_(torch.stack(self._all(local.clone())).sum(0))

    def largest(self, local):
        self.calls.append(("largest", tuple(local.shape)))
        return local.copy_(torch.stack(self._all(local.clone())).amax(0))

    def each(self, local):
        self.calls.append(("each", tuple(local.shape)))
        return torch.stack(self._all(local.clone()))

    def words(self, local):
        return self._all(local)


def in_threads(size, work):
    """``work(group)`` in each of so many threads; what they return, or raise, in the order of their ranks."""
    meeting, results = _Meeting(size), [None] * size

    def run(rank):
        group = ThreadGroup(meeting, rank)
        try:
            results[rank] = work(group)
        except threading.BrokenBarrierError as error:
            results[rank] = error
        except Exception as error:
            results[rank] = error
            # Those who wait for this one must not wait for ever, unless all of them raise.
            if not isinstance(error, ValueError | TypeError | IndexError):
                meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def unwrapped(results):
    """The results, if none is an error; else that error."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
