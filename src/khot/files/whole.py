"""Atomic writes: a reader sees the old file or the new one, never a half-written one.

Everything is written to a temporary file in the same folder, brought to the disk, and only then renamed. A
full disk, Ctrl-C or a kill leaves the old file; after a kill the temporary file, ``.<name>.<letters>``, stays
too. Who may read a file stays as it is; for a new file the process's umask decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "Writer",
    "check_writable",
    "json_writer",
    "replacing",
    "write_json",
    "write_text",
    "write_together",
]

Writer = Callable[[Path], object]


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary file beside ``path``; it replaces ``path`` if writing succeeds.

    Raises:
        OSError: if the disk is full, or the file cannot be written for another reason; it names ``path``.
    """
    with _failures_named(path), _temporary(path) as temporary:
        yield temporary
        _bring_to_disk(temporary)
        _take_place(temporary, path)


def check_writable(name: str, argument: str, folder: Path) -> None:
    """Raise `OSError` now, rather than after the work, if no file can be written to ``folder``.

    A folder that does not exist is not made: the nearest one above it is tried. Nothing is left behind.
    """
    try:
        there = folder
        while not (there.exists() or there.is_symlink()):
            there = there.parent
        with _temporary(there / "trial"):
            pass
    except OSError as error:
        reason = "a file is there" if isinstance(error, FileExistsError) else error.strerror or error
        raise OSError(
            f"{name}: {argument} must be a folder that can be written to, got {str(folder)!r} ({reason})"
        ) from error


def write_together(files: Mapping[Path, Writer]) -> None:
    """Write files that belong together; all are complete before the first one replaces its old one.

    Args:
        files: for each path a function that writes its content to the (temporary) path it is given.
    """
    with contextlib.ExitStack() as stack:
        ready: dict[Path, Path] = {}
        for path, write in files.items():
            with _failures_named(path):
                ready[path] = stack.enter_context(_temporary(path))
                write(ready[path])
                _bring_to_disk(ready[path])
        for path, temporary in ready.items():
            with _failures_named(path):
                _take_place(temporary, path)


def write_json(value: Any, path: Path) -> None:
    """Write ``value`` as JSON; if that fails, the old file stays."""
    write_together({path: json_writer(value)})


def write_text(text: str, path: Path) -> None:
    """Write ``text``; if that fails, the old file stays."""
    write_together({path: _text_writer(text)})


def json_writer(value: Any) -> Writer:
    """A writer of ``value`` as JSON, for :func:`write_together`; what JSON lacks is refused at once."""
    return _text_writer(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _text_writer(text: str) -> Writer:
    return lambda file: file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _temporary(path: Path) -> Generator[Path]:
    """An empty file beside ``path``, which is removed at the end if it is still there.

    It is created where it would be removed: Ctrl-C is noticed most often when a system call returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _bring_to_disk(file: Path) -> None:
    """Some file systems report only now that they are full; after a rename it would be too late."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _take_place(temporary: Path, path: Path) -> None:
    """Rename; a file that only its owner could read does not become everybody's."""
    if path.exists():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    temporary.replace(path)


@contextlib.contextmanager
def _failures_named(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = f"{path} could not be written and is as before: {error.strerror or error}"
        raise OSError(reason) if error.errno is None else OSError(error.errno, reason) from error
