"""Work in parts, so that memory stays bounded: how many items at a time, and which."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["AT_ONCE", "at_once", "chunks"]

AT_ONCE = 1 << 22  # entries in memory at a time


def at_once(entries: int, limit: int | None = None) -> int:
    """How many items of so many entries each may be in memory at a time: one at least."""
    return max(1, (AT_ONCE if limit is None else limit) // max(1, entries))


def chunks(items: int, entries: int, limit: int | None = None) -> Iterator[slice]:
    """The items 0 … ``items`` − 1 of so many ``entries`` each, in slices of as many as memory may hold."""
    size = at_once(entries, limit)
    return (slice(begin, min(begin + size, items)) for begin in range(0, items, size))
