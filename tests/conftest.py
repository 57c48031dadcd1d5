"""Settings of all tests: strategies can be imported, hypothesis draws the same examples each time; and what
tests of many folders ask for: the compiled library, and a process of their own."""

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


@pytest.fixture(scope="session")
def fresh_python():
    """Runs code where torch is imported and khot is not."""
    from strategies.fresh_python import FreshPython

    with FreshPython() as python:
        yield python


@pytest.fixture
def run_python(fresh_python):
    """Run code in a new process, with only the given KHOT_ switches set; returns what it prints."""

    def run(code: str, **switches: str) -> str:
        done = fresh_python.run(code, **switches)
        assert done.code == 0, done.err
        return done.out.strip()

    return run
