"""Settings of all tests: strategies can be imported, and hypothesis draws the same examples each time."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # for `from strategies.… import …`

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")
