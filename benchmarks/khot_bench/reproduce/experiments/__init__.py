"""The reproductions: each module here without an underscore defines `REPRODUCTION`.

A new one is one file: `khot reproduce` finds it by its name.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from khot_bench.reproduce.run import Reproduction

__all__ = ["ledger_path", "load_reproduction", "reproduction_names"]


def reproduction_names() -> tuple[str, ...]:
    """Every reproduction, by the name of its module; nothing is imported."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load_reproduction(name: str) -> Reproduction:
    """The reproduction of that name; a `ValueError` names those there are."""
    if name not in reproduction_names():
        raise ValueError(f"unknown reproduction {name!r}; choose from {', '.join(reproduction_names())}")
    reproduction = importlib.import_module(f"{__name__}.{name}").REPRODUCTION
    assert isinstance(reproduction, Reproduction)
    return reproduction


def ledger_path(name: str, root: Path) -> Path:
    """Where the committed runs of a reproduction are."""
    return root / "benchmarks" / "results" / "reproduce" / f"{name}.json"
