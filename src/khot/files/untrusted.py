"""Read files that may be damaged or hostile: all limits of size and depth are here.

==================  ========  ==============================================================================
limit               value     why
==================  ========  ==============================================================================
MAX_JSON_BYTES      64 MiB    configurations and results have kilobytes; a parsed text takes many times its
                              size in memory
MAX_JSON_DEPTH      64        ours have a depth of 8; code that compares or prints a value calls itself once
                              for each level
MAX_EXPANSION       20        weights hardly compress, so an archive (npz, pt) that unpacks to more than this
                              many times its size, beyond 1 MiB, is made to fill the memory
MAX_UNPACKED_BYTES  1 GiB     of a gzip file; the largest set in the format of MNIST, EMNIST, has half of that
==================  ========  ==============================================================================

Files of tensors (safetensors, npy, and archives that are not compressed) have no limit of their own: they
must hold all bytes that they claim, so memory is bounded by the size of the file. Nothing is ever unpickled,
and no file names another file to open.
"""

from __future__ import annotations

import gzip
import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn, cast

__all__ = [
    "MAX_EXPANSION",
    "MAX_JSON_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_UNPACKED_BYTES",
    "check_archive",
    "parse_json",
    "read_json",
    "read_object",
    "unpacked",
]

MAX_JSON_BYTES = 64 << 20
MAX_JSON_DEPTH = 64
MAX_EXPANSION = 20
MAX_UNPACKED_BYTES = 1 << 30
_ALWAYS_ALLOWED = 1 << 20


def parse_json(text: str, *, finite: bool = True) -> Any:
    """The value of a JSON text.

    Args:
        text: the text.
        finite: refuse NaN and Infinity, which Python writes but JSON lacks.

    Raises:
        ValueError: if it is not JSON, too long or too deep, or has a number that no 64 bits hold.
    """
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"longer than {MAX_JSON_BYTES} bytes")
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_real, parse_constant=_refused if finite else float
        )
    except RecursionError:
        raise ValueError(f"deeper than {MAX_JSON_DEPTH} levels") from None
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError(f"deeper than {MAX_JSON_DEPTH} levels")


def read_json(path: str | Path, caller: str) -> Any:
    """The value in a JSON file; errors begin with the name of ``caller`` and name the file."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_JSON_BYTES + 1)
    try:
        return parse_json(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{caller}: {path} is not JSON ({error})") from error


def read_object(path: str | Path, caller: str) -> dict[str, Any]:
    """The object in a JSON file; see :func:`read_json`."""
    value = read_json(path, caller)
    if not isinstance(value, dict):
        raise ValueError(f"{caller}: {path} must hold an object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def check_archive(path: Path) -> dict[str, int]:
    """The sizes of the members of a zip archive by name.

    What is unpacked never gets larger than these sizes: `zipfile` stops reading there.

    Raises:
        ValueError: if it is not a whole archive, or unpacks to more than :data:`MAX_EXPANSION` allows.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"not a whole archive ({error})") from error
    size, unpacked_size = path.stat().st_size, sum(sizes.values())
    if unpacked_size > MAX_EXPANSION * size + _ALWAYS_ALLOWED:
        raise ValueError(
            f"{size} bytes that unpack to {unpacked_size}, more than {MAX_EXPANSION} times as many"
        )
    return sizes


def unpacked(path: Path) -> bytes:
    """The content of a gzip file.

    Raises:
        ValueError: if it is damaged, or longer than :data:`MAX_UNPACKED_BYTES`.
    """
    content = bytearray()
    try:
        with gzip.open(path) as file:
            while part := file.read(_ALWAYS_ALLOWED):
                content += part
                if len(content) > MAX_UNPACKED_BYTES:
                    raise ValueError(f"too large: it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"truncated or no gzip file ({error})") from error
    return bytes(content)


def _inside(value: Any) -> list[Any]:
    """The lists and objects in a list or an object."""
    if isinstance(value, dict):
        return _inside(list(cast("dict[str, Any]", value).values()))
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict | list)]


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= 1 << 64:
        raise ValueError("it has a whole number of more than 64 bits")
    return int(text)


def _real(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError("it has a number above the largest of 64 bits")
    return float(text)


def _refused(name: str) -> NoReturn:
    raise ValueError(f"it has {name}, which JSON lacks")
