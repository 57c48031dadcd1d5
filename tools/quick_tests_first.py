"""A pytest plugin: tests marked `slow` run after all others, so that a mistake shows early."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slow tests to the end; the order is otherwise kept."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
