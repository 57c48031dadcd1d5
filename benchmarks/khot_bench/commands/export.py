"""The command `khot bench export`."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from khot.cli.progress import progress
from khot.compare.report.terminal import show_grid
from khot_bench.commands import fail
from khot_bench.commands._operator_options import Output, Root, keep
from khot_bench.exported import exported_table, run_exported

__all__ = ["export"]


def export(output: Output = None, root: Root = Path()) -> None:
    """Sizes of exported graphs: torch.export and ONNX, each compared with torch in onnxruntime."""
    if find_spec("onnxscript") is None or find_spec("onnxruntime") is None:
        fail('onnxscript and onnxruntime are not installed: pip install "khot[onnx]"')
    with progress("khot bench export") as report:
        found = run_exported(report, shlex.join(["khot", *sys.argv[1:]]))
    show_grid(exported_table(found), Console())
    keep("export", found, output, root, "")
