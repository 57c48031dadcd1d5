"""What the examples in docstrings may use without importing it: torch."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _torch_in_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
