"""Atomic writes: a reader sees the old file or the new one, never a half-written one."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_json", "write_text"]


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary file beside ``path``; it replaces ``path`` if writing succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(value: Any, path: Path) -> None:
    """Write ``value`` as JSON; if that fails, the old file stays."""
    write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write ``text``; if that fails, the old file stays."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
