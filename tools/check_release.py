"""Checks that everything that states a version or a date of khot states the same.

The version is written in ``pyproject.toml``. These repeat it, because their readers see nothing else:
``benchmarks/pyproject.toml``, ``CITATION.cff`` and the newest section of ``CHANGELOG.md``. A version in
development (``0.1.0.dev0``) has a section ``## [0.1.0] - unreleased``; a released one has a date, the same as
``date-released`` in ``CITATION.cff``.

``python tools/check_release.py`` prints the version; ``make dist`` and a test call it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _found(pattern: str, path: str) -> str | None:
    match = re.search(pattern, (ROOT / path).read_text("utf-8"), re.MULTILINE)
    return match and match[1]


def version() -> str:
    """The version in pyproject.toml, the one that is true."""
    found = _found(r'^version = "(.+)"$', "pyproject.toml")
    assert found, "pyproject.toml states no version"
    return found


def problems() -> list[str]:
    """What contradicts pyproject.toml, a line each."""
    stated = version()
    is_release = re.fullmatch(r"\d+\.\d+\.\d+", stated) is not None
    base = stated if is_release else stated.partition(".dev")[0]
    found: list[str] = []
    for path, pattern in (
        ("benchmarks/pyproject.toml", r'^version = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
    ):
        if (other := _found(pattern, path)) != stated:
            found.append(f"{path} states version {other}, pyproject.toml {stated}")
    date = r"\d{4}-\d\d-\d\d"
    released = _found(rf"^date-released: ({date})$", "CITATION.cff")
    newest = _found(r"^## (\[.+)$", "CHANGELOG.md")
    expected = f"[{base}] - {released if is_release else 'unreleased'}"
    if is_release and released is None:
        found.append("CITATION.cff has no date-released, but this is a release")
    if not is_release and released is not None:
        found.append(f"CITATION.cff says released on {released}, but {stated} is not a release")
    if newest != expected:
        found.append(f"CHANGELOG.md begins with {newest!r}, expected {expected!r}")
    return found


if __name__ == "__main__":
    for problem in problems():
        sys.stderr.write(f"release: {problem}\n")
    sys.stdout.write(f"khot {version()}\n")
    sys.exit(bool(problems()))
