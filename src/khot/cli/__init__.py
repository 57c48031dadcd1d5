"""The command line, ``khot`` and ``python -m khot``: one file per command; only the one that runs is loaded.

`doctor` must work on any machine, so it needs only torch and numpy; the others need ``khot[cli]``. The
commands `bench` and `reproduce` come with the project in ``benchmarks/``.
"""

from khot.cli._dispatch import main

__all__ = ["main"]
