"""A call in a process of its own, which ends when it has used up its processor time or its memory.

Compiled code does not listen to exceptions, so that only the system can stop it.
"""

# pyright: basic
from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["within"]

_NO_MEMORY = "out of memory"
_STOPPED = (-signal.SIGXCPU, -signal.SIGABRT)
"""By the limit of time, and by compiled code that gets no memory."""


def within(seconds: int, gibibytes: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function(*arguments)`` gives, or None if it takes more processor time or memory than that.

    The process is forked, so that nothing is loaded again; what it returns is pickled.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(
        target=_answer, args=(there, (seconds, gibibytes), function, arguments), daemon=True
    )
    process.start()
    there.close()
    try:
        answer, error = here.recv()
    except EOFError:
        answer, error = None, None  # it ended without an answer
    process.join()
    if process.exitcode in _STOPPED or error == _NO_MEMORY:
        return None
    if error is not None or process.exitcode != 0:
        raise RuntimeError(error or f"the process ended with exit code {process.exitcode}")
    return answer


def _answer(there: Connection, limits: tuple[int, int], function: Callable[..., Any], arguments: Any) -> None:
    seconds, gibibytes = limits
    until = int(time.process_time()) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_DATA, (gibibytes << 30, resource.RLIM_INFINITY))
    try:
        there.send((function(*arguments), None))
    except MemoryError:
        there.send((None, _NO_MEMORY))
    except Exception as error:  # the parent raises it
        there.send((None, f"{type(error).__name__}: {error}"))
