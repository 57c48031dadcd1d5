"""Builds the optional compiled kernels; everything else about the package is in pyproject.toml.

Read from the environment:
    KHOT_NO_NATIVE=1       build without them (a pure Python wheel)
    KHOT_REQUIRE_NATIVE=1  fail when they cannot be built, instead of going on without
    KHOT_SANITIZE=...      value for -fsanitize, e.g. address,undefined (see tools/sanitize.sh)
"""

import os
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

# Never -ffast-math: NaN and inf keep their meaning, and a library linked with it sets flush-to-zero for
# the whole process. Sums are reordered only where `#pragma omp simd reduction` says so.
# -g0 takes back the -g that many Pythons pass to every extension: it makes the wheel three times larger.
FLAGS = ["-std=c++17", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]

NO_COMPILER = (
    "khot: the compiled kernels were not built, the portable torch path will be used; to get them, install "
    "a C++17 compiler (Debian/Ubuntu: apt install g++ python3-dev; Fedora: dnf install gcc-c++ "
    "python3-devel; macOS: xcode-select --install; conda: conda install cxx-compiler) and install khot again."
)


def switched_on(name):
    return os.environ.get(name, "") not in ("", "0")


class BuildKernels(build_ext):
    """With OpenMP threads if the compiler has them, else with `omp simd` alone, else not at all."""

    def build_extension(self, ext):
        sanitize = os.environ.get("KHOT_SANITIZE")
        checks = [f"-fsanitize={sanitize}", "-g", "-O1", "-fno-omit-frame-pointer"] if sanitize else []
        try:
            try:
                self.build_with(ext, checks, "-fopenmp")
            except (CompileError, LinkError):
                self.build_with(ext, checks, "-fopenmp-simd")
        except (CompileError, LinkError):
            self.remove_stale(ext)
            if ext.optional:
                sys.stderr.write(NO_COMPILER + "\n")
            raise  # setuptools lets it pass when ext.optional

    def build_with(self, ext, checks, openmp):
        ext.extra_compile_args = [*FLAGS, openmp, *checks]
        ext.extra_link_args = [openmp, *checks]
        super().build_extension(ext)

    def remove_stale(self, ext):
        """No library is right, one of an earlier build beside newer sources is not."""
        paths = [self.get_ext_fullpath(ext.name)]
        if self.editable_mode:
            paths.append(os.path.join("src", self.get_ext_filename(ext.name)))
        for path in paths:
            if os.path.exists(path):
                os.remove(path)


def kernels():
    # A free-threaded Python has no stable ABI: its library is for that version alone.
    stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")
    extension = Extension(
        "khot._native",
        sources=sorted(glob("csrc/*.cpp")),
        depends=["setup.py", *sorted(glob("csrc/*.h") + glob("csrc/*.inl"))],
        language="c++",
        define_macros=[("Py_LIMITED_API", "0x030A0000")] if stable_abi else [],
        py_limited_api=stable_abi,
        optional=not switched_on("KHOT_REQUIRE_NATIVE"),
    )
    options = {"bdist_wheel": {"py_limited_api": "cp310"}} if stable_abi else {}
    return {"ext_modules": [extension], "cmdclass": {"build_ext": BuildKernels}, "options": options}


setup(**({} if switched_on("KHOT_NO_NATIVE") else kernels()))
