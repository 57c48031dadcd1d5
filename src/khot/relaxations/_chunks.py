"""Split work into chunks so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["AT_ONCE", "at_once", "chunks"]

AT_ONCE = 1 << 22  # entries in memory at a time


def at_once(entries: int, limit: int | None = None) -> int:
    """How many items of ``entries`` entries each may be in memory at a time; at least one."""
    return max(1, (AT_ONCE if limit is None else limit) // max(1, entries))


def chunks(items: int, entries: int, limit: int | None = None) -> Iterator[slice]:
    """Slices of 0 … ``items`` − 1, each as large as memory allows at ``entries`` entries per item."""
    size = at_once(entries, limit)
    return (slice(begin, min(begin + size, items)) for begin in range(0, items, size))
