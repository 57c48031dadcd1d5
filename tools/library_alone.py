"""Loads the compiled library of an unpacked wheel without torch, and computes with it; for any Python.

    python3.12 tools/library_alone.py FOLDER

One library serves every Python from 3.10 on. Where no torch can be installed for an interpreter, this shows
at least that it loads there, that its functions take their arguments, and that their results are right.
"""

import glob
import importlib.util
import math
import sys
from array import array


def address(numbers: array) -> int:
    """Where the numbers are in memory."""
    return numbers.buffer_info()[0]


def check(folder: str) -> str:
    """Compute small known answers; what was loaded."""
    (path,) = glob.glob(f"{folder}/khot/_native*.so")
    spec = importlib.util.spec_from_file_location("khot._native", path)
    assert spec is not None and spec.loader is not None, path  # noqa: PT018
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    for kind, suffix, tolerance in (("f", "f32", 1e-6), ("d", "f64", 1e-14)):
        # Of two scores and k = 1 the weights are σ(±(a − b)/2τ).
        x, y = array(kind, [1.0, 0.0, -3.0, -3.0]), array(kind, [0.0] * 4)
        weights = getattr(library, f"sigmoid_topk_{suffix}")
        weights(address(x), 0, 1.0, 0.5, address(y), 0, 0, 2, 2, 1)
        larger = 1 / (1 + math.exp(-1.0))
        wrong = max(abs(a - b) for a, b in zip(y, [larger, 1 - larger, 0.5, 0.5], strict=True))
        assert wrong <= tolerance, (suffix, list(y))
        getattr(library, f"hard_topk_{suffix}")(address(x), 0, 1.0, address(y), 2, 2, 1)
        assert list(y) == [1.0, 0.0, 1.0, 0.0], list(y)
    try:
        library.sigmoid_topk_f64(0, 0, 1.0, 0.5, 0, 0, 0, -1, 2, 1)
    except (OverflowError, TypeError, ValueError):
        return f"ABI {library.ABI}, {library.isa()}"
    raise AssertionError("a negative number of rows was accepted")


if __name__ == "__main__":
    sys.stdout.write(check(sys.argv[1]) + "\n")
