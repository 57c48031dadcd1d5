"""The peers are in .venv-peers: its packages come after those of this environment."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path += [str(folder) for folder in ROOT.glob(".venv-peers/lib/python*/site-packages")]
