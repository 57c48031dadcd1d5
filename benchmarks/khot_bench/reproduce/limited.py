"""A call in a process of its own, which ends when it has used up its processor time.

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


def within(seconds: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function(*arguments)`` gives, or None if it takes more processor time than ``seconds``.

    The process is forked, so that nothing is loaded again; what it returns is pickled.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, seconds, function, arguments), daemon=True)
    process.start()
    there.close()
    try:
        answer, error = here.recv()
    except EOFError:
        answer, error = None, None
    process.join()
    if process.exitcode == -signal.SIGXCPU:
        return None
    if error is not None or process.exitcode != 0:
        raise RuntimeError(error or f"the process ended with exit code {process.exitcode}")
    return answer


def _answer(there: Connection, seconds: int, function: Callable[..., Any], arguments: Any) -> None:
    limit = int(time.process_time()) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    try:
        there.send((function(*arguments), None))
    except Exception as error:  # noqa: BLE001: the parent raises it
        there.send((None, f"{type(error).__name__}: {error}"))
