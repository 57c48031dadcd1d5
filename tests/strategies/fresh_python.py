"""Code in processes of its own that know torch and nothing of khot.

Importing torch takes seconds, importing khot a fraction of one, and dozens of tests ask what khot does when
it is imported under some switch. So one process imports torch, and forks a child for each piece of code.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_PARENT = """
import json, os, sys, traceback
import numpy, torch

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, name in enumerate([os.devnull, request["out"], request["err"]]):
        os.dup2(os.open(name, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    code = 0
    try:
        exec(compile(request["code"], "<code>", "exec"), {"__name__": "__main__"})
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
"""


class Done(NamedTuple):
    """How a process ended, and what it printed."""

    code: int
    out: str
    err: str


class FreshPython:
    """Runs pieces of code, each in a new child of one process; a context manager that ends it."""

    def __enter__(self) -> "FreshPython":
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._parent = self._stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()  # closes the pipe, at whose end the process ends

    def run(self, code: str, **switches: str) -> Done:
        """Run the code with only the given KHOT_ switches set."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KHOT_")}
        out, err = self._folder / "out", self._folder / "err"
        for file in (out, err):
            file.write_text("")
        request = {"code": code, "environment": {**environment, **switches}, "out": str(out), "err": str(err)}
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        return Done(int(self._parent.stdout.readline()), out.read_text(), err.read_text())
