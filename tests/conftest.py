"""Settings of all tests: strategies can be imported, hypothesis draws the same examples each time, and what
needs the compiled library can ask for it."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

from khot.kernels import loader

sys.path.insert(0, str(Path(__file__).parent))  # for `from strategies.… import …`

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


@pytest.fixture
def library():
    """The compiled library; without it the test is skipped, or fails where KHOT_REQUIRE_NATIVE=1."""
    try:
        found = loader.native()
    except ImportError as error:
        pytest.fail(str(error))
    if found is None:
        pytest.skip(f"needs the compiled library: {loader.status().reason}")
    return found
