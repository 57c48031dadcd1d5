"""Starts the processes of a group, and gathers what they found."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def start(arguments, **environment):
    """A Python process that finds the strategies; what it prints is kept."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(running, timeout=400):
    """(code, out, err) of each process; none is left behind."""
    try:
        texts = [process.communicate(timeout=timeout) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, *text) for process, text in zip(running, texts, strict=True)]


def run_cases(module, size, folder):
    """Of each case of a module what failed, by rank: {case: {rank: traceback}}, empty if nothing did."""
    running = [start(["-m", "strategies.process_worker", module, rank, size, folder]) for rank in range(size)]
    ends = finished(running)
    assert [code for code, _, _ in ends] == [0] * size, ends
    found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
    return {case: {rank: each[case] for rank, each in enumerate(found) if each[case]} for case in found[0]}


def case_names(module):
    """The names of the cases of a module, in order; it is not imported."""
    text = (TESTS / Path(*module.split("."))).with_suffix(".py").read_text("utf-8")
    return [line[4:].partition("(")[0] for line in text.splitlines() if line.startswith("def case_")]
