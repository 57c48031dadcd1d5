"""What `khot bench list` says."""

from __future__ import annotations

from collections.abc import Iterator

from khot.compare.cost.side import load_side
from khot_bench.adversarial.matrix import ALL_TRAPS
from khot_bench.peers import PeerAbsent, all_peers
from khot_bench.suites import load_suite, suite_names

__all__ = ["lines"]


def lines() -> Iterator[str]:
    """The suites with their cases, the traps, then the peers."""
    for name in suite_names():
        suite = load_suite(name)
        yield f"{name}: {suite.title}"
        yield f"  cases: {', '.join(case.label for case in suite.cases)}"
    yield f"adversarial: every operator and peer against {len(ALL_TRAPS)} traps"
    yield f"  traps: {', '.join(trap.name for trap in ALL_TRAPS)}"
    yield "peers:"
    for source in all_peers().values():
        yield f"  {_peer(source)}"


def _peer(source: str) -> str:
    try:
        side = load_side(source)
    except PeerAbsent as error:
        return str(error)
    return f"{side.name} ({side.package} {side.version})"
