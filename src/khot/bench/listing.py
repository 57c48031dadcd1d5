"""What `khot bench list` says."""

from __future__ import annotations

from collections.abc import Iterator

from khot.bench.peers import PeerAbsent, all_peers
from khot.bench.sides import load_side
from khot.bench.suites import load_suite, suite_names

__all__ = ["lines"]


def lines() -> Iterator[str]:
    """The suites with their cases, then the peers."""
    for name in suite_names():
        suite = load_suite(name)
        yield f"{name}: {suite.title}"
        yield f"  cases: {', '.join(case.label for case in suite.cases)}"
    yield "peers:"
    for source in all_peers().values():
        yield f"  {_peer(source)}"


def _peer(source: str) -> str:
    try:
        side = load_side(source)
    except PeerAbsent as error:
        return str(error)
    return f"{side.name} ({side.package} {side.version})"
