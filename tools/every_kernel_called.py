"""A pytest plugin for sanitize.sh: a run that never calls some compiled kernel fails, and says which."""

import functools
import importlib

_OF_THE_LIBRARY = {"isa", "isa_supported", "openmp"}
_uncalled: set[str] = set()


def _noted(name, kernel):
    @functools.wraps(kernel)
    def call(*arguments):
        _uncalled.discard(name)
        return kernel(*arguments)

    return call


def pytest_configure():
    """Put a note-taker before each kernel."""
    library = importlib.import_module("khot._native")
    for name, kernel in list(vars(library).items()):
        if callable(kernel) and not name.startswith("__") and name not in _OF_THE_LIBRARY:
            _uncalled.add(name)
            setattr(library, name, _noted(name, kernel))


def pytest_sessionfinish(session):
    """Fail if a kernel is left."""
    if _uncalled and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter):
    """Name those that are left."""
    for name in sorted(_uncalled):
        terminalreporter.write_line(f"never called: {name}")
