"""Files that a reader sees as they were or as they are, never half written."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["write_json", "write_text"]


def write_json(value: Any, path: Path) -> None:
    """Write ``value`` as JSON, or leave the file as it was."""
    write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write ``text``, or leave the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
