"""The suites: each module here defines `SUITE`, its cases and the sides measured at them.

A new suite is one file: `khot bench` finds it by its name.
"""

from __future__ import annotations

import importlib
import pkgutil

from khot_bench.suite import Suite

__all__ = ["load_suite", "suite_names"]


def suite_names() -> tuple[str, ...]:
    """Every suite, by the name of its module; nothing is imported."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_suite(name: str) -> Suite:
    """The suite of that name; a `ValueError` names those there are."""
    if name not in suite_names():
        raise ValueError(f"unknown suite {name!r}; choose from {', '.join(suite_names())}")
    suite = importlib.import_module(f"{__name__}.{name}").SUITE
    assert isinstance(suite, Suite)
    return suite
