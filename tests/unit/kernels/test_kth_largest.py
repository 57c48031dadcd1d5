"""csrc/kth_largest.h, which other kernels call: built by itself, since Python does not reach it."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from strategies.quick_run import in_turn
from strategies.rows_to_select import LIES, ROWS, SAMPLES, misleading, problem

SOURCES = Path(__file__).parents[3] / "csrc"
DTYPES = [np.float32, np.float64]
WITH_NAN = ["some NaN", "almost all NaN", "all NaN", "mixed", "uniform bits"]

WRAPPERS = """
#include "kth_largest.h"
#define WRAP(real, suffix)                                                                             \\
    extern "C" real kth_##suffix(const real* x, int64_t n, int64_t k, real* scratch, int64_t* above) { \\
        return khot::kth_largest(x, n, k, scratch, above);                                             \\
    }                                                                                                  \\
    extern "C" real next_##suffix(const real* x, int64_t n, int64_t k, real* scratch, real* next) {    \\
        return khot::kth_and_next_largest(x, n, k, scratch, next);                                     \\
    }                                                                                                  \\
    extern "C" int64_t above_##suffix(const real* x, int64_t n, real v) { return khot::count_above(x, n, v); }
WRAP(float, float32)
WRAP(double, float64)
"""


@pytest.fixture(scope="module")
def select(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("select")
    (folder / "wrappers.cpp").write_text(WRAPPERS)
    sources = [folder / "wrappers.cpp", SOURCES / "kth_largest.cpp", SOURCES / "dispatch.cpp"]
    command = [compiler, "-std=c++17", "-O2", "-fno-trapping-math", "-fopenmp-simd", "-shared", "-fPIC"]
    if os.environ.get("KHOT_SANITIZE"):
        command.append(f"-fsanitize={os.environ['KHOT_SANITIZE']}")
    # The compiler must not run with the sanitizers that tools/sanitize.sh preloads for this process.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(
        [*command, f"-I{SOURCES}", *sources, "-o", folder / "select.so"], check=True, env=environment
    )
    return ctypes.CDLL(str(folder / "select.so"))


def call(select, function, x, *rest):
    """The answer of a function of a row, and what it wrote behind its last pointer, if it has one."""
    name = x.dtype.name
    real = {"float32": ctypes.c_float, "float64": ctypes.c_double}[name]
    found = getattr(select, f"{function}_{name}")
    address, n = ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(len(x))
    if function == "above":
        found.restype = ctypes.c_int64
        return found(address, n, real(rest[0]))
    found.restype = real
    scratch = np.full(len(x), np.nan, x.dtype)
    extra = ctypes.c_int64() if function == "kth" else real()
    value = found(
        address, n, ctypes.c_int64(rest[0]), ctypes.c_void_p(scratch.ctypes.data), ctypes.byref(extra)
    )
    return value, extra.value


def assert_right(select, x, order, k):
    value, above = call(select, "kth", x, k)
    assert value == order[k - 1]
    assert above == np.count_nonzero(x > order[k - 1])
    assert call(select, "next", x, k) == (order[k - 1], order[min(k, len(x) - 1)])
    assert call(select, "above", x, order[k - 1]) == above


@pytest.mark.parametrize(
    ("kind", "dtype"),
    in_turn((kind for kind in ROWS if kind not in ("mixed", "uniform bits") and "NaN" not in kind), DTYPES),
)
def test_order_statistics(select, kind, dtype):
    for n in (1, 2, 17, 64, 65, 500, 5000, 140_003):
        x = problem(kind, (n,), dtype)
        before = x.copy()
        order = np.sort(x)[::-1]
        for k in sorted({1, 2, n // 4, n // 2, n - 1, n} & set(range(1, n + 1))):
            assert_right(select, x, order, k)
        assert np.array_equal(x, before)


@pytest.mark.parametrize(("lie", "n", "dtype"), in_turn(LIES, SAMPLES, DTYPES))
def test_a_sample_that_misleads(select, n, dtype, lie):
    x, budgets = misleading(lie, n, dtype)
    order = np.sort(x)[::-1]
    for k in budgets:
        assert_right(select, x, order, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", WITH_NAN)
def test_with_nan_it_ends(select, kind, dtype):
    for n in (1, 17, 65, 500, 5000, 140_003):
        x = problem(kind, (n,), dtype)
        for k in sorted({1, max(n // 2, 1), n}):
            call(select, "kth", x, k)
            call(select, "next", x, k)
