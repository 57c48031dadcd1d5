"""Fixtures for tests of compiled code."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=[1, 2])
def threads(request):
    torch.set_num_threads(request.param)


@pytest.fixture
def poisoned():
    """torch.empty gives NaN instead of whatever was there, often a zero or the right answer of before."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
