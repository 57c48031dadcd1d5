"""A process that calls khot with the plainest instruction set, to compare results with those of this one."""

import os
import pickle
import subprocess
import sys
from typing import Any

_WORKER = """
import pickle, sys
import khot
from khot.kernels import loader

while True:
    try:
        name, arguments, named = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    result = loader.status().isa if name == "isa" else getattr(khot, name)(*arguments, **named)
    pickle.dump(result, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""


class BaseInstructions:
    """Calls functions of khot by name under KHOT_ISA=base; a context manager that ends the process."""

    def __enter__(self) -> "BaseInstructions":
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            env={**os.environ, "KHOT_ISA": "base"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        pickle.dump((name, arguments, named), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)
