"""Work in parts: every item once, in order, and never more entries than the limit where that can be."""

import pytest

from khot.relaxations import _chunks
from khot.relaxations._chunks import at_once, chunks


@pytest.mark.parametrize("items", [0, 1, 7, 100])
@pytest.mark.parametrize("entries", [0, 1, 3, 50])
@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_parts_hold_every_item_once_and_no_more_than_the_limit(items, entries, limit):
    parts = list(chunks(items, entries, limit))
    assert [i for part in parts for i in range(items)[part]] == list(range(items))
    for part in parts:
        length = part.stop - part.start
        assert length >= 1
        assert length == 1 or length * entries <= limit
    assert all(part.stop - part.start == at_once(entries, limit) for part in parts[:-1])


def test_the_common_limit_is_read_at_each_call(monkeypatch):
    assert at_once(1 << 20) == 4
    monkeypatch.setattr(_chunks, "AT_ONCE", 6)
    assert [(part.start, part.stop) for part in chunks(5, 3)] == [(0, 2), (2, 4), (4, 5)]
