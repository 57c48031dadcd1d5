"""Number of threads and treatment of subnormal numbers are afterwards what they were."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_settings_afterwards():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
