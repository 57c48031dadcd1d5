"""Refuse a sub-interpreter before torch is imported there, which may wait forever."""

from __future__ import annotations

import importlib

__all__: list[str] = []


def _in_main_interpreter() -> bool:
    """True also where Python cannot tell."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return interpreters.get_current() == interpreters.get_main()
    return True


if not _in_main_interpreter():
    raise ImportError(
        "khot works in the main interpreter alone, as torch does: use processes or threads instead of "
        "sub-interpreters"
    )
