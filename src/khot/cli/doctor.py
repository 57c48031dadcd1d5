"""``khot doctor``: show what is installed on this machine, what is missing, and how to get it.

It needs only torch and numpy, and never fails because something is missing: it reports it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from json import dumps

import torch

from khot.kernels.loader import NativeStatus, status, switched_on

__all__ = ["TESTED_TORCH", "Report", "collect", "lines", "main", "run"]

#: The version in constraints.txt, with which this release was tested.
TESTED_TORCH = "2.13.0"

SWITCHES = ("KHOT_NO_NATIVE", "KHOT_REQUIRE_NATIVE", "KHOT_ISA", "KHOT_TRITON", "OMP_NUM_THREADS")

GET_COMPILER = (
    "Debian/Ubuntu: apt install g++ python3-dev; Fedora: dnf install gcc-c++ python3-devel; "
    "macOS: xcode-select --install; conda: conda install cxx-compiler"
)
REINSTALL = "pip install --force-reinstall --no-deps --no-cache-dir khot"


@dataclass(frozen=True)
class Report:
    """The facts, as ``khot doctor --json`` prints them.

    Attributes:
        versions: Versions of khot, Python, torch and numpy; None if not installed.
        torch_tested: The torch version this release was tested with.
        platform: Operating system and machine.
        native: The compiled library.
        compiler: The C++ compiler that a build would use, None if there is none.
        python_headers: Whether ``Python.h`` exists, which a build needs too.
        threads: The number of threads that torch and the kernels use.
        cpus: The number of CPUs that this process may use.
        environment: The environment variables of khot that are set.
        cuda: Names of the CUDA devices.
        triton: Version of Triton, None if it is not installed.
        missing: For each optional extra, the packages that are missing.
        notes: Points that deserve attention, one sentence each.
    """

    versions: dict[str, str | None]
    torch_tested: str
    platform: str
    native: NativeStatus
    compiler: str | None
    python_headers: bool
    threads: int
    cpus: int
    environment: dict[str, str]
    cuda: list[str]
    triton: str | None
    missing: dict[str, list[str]]
    notes: list[str]


def collect() -> Report:
    """Collect all facts."""
    native = status()
    compiler = _compiler()
    headers = _has_python_headers()
    return Report(
        versions={
            "khot": _version("khot"),
            "Python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": _version("numpy"),
        },
        torch_tested=TESTED_TORCH,
        platform=f"{platform.system()} {platform.machine()}",
        native=native,
        compiler=compiler,
        python_headers=headers,
        threads=torch.get_num_threads(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        environment={name: os.environ[name] for name in SWITCHES if name in os.environ},
        cuda=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        triton=_version("triton"),
        missing=_missing_by_extra(),
        notes=_notes(native, compiler, headers),
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _compiler() -> str | None:
    # As setuptools chooses it.
    command = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++"
    return shutil.which(shlex.split(command)[0])


def _has_python_headers() -> bool:
    return os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))


def _notes(native: NativeStatus, compiler: str | None, headers: bool) -> list[str]:
    notes: list[str] = []
    if not native.available and not switched_on("KHOT_NO_NATIVE"):
        if compiler and headers:
            notes.append(f"A C++ compiler is here now; to build the compiled library: {REINSTALL}")
        else:
            lacking = "Python.h" if compiler else "C++ compiler"
            notes.append(f"No {lacking} found. {GET_COMPILER}. Then: {REINSTALL}")
    asked = os.environ.get("KHOT_ISA")
    if native.available and asked and asked != native.isa:
        notes.append(
            f"KHOT_ISA={asked} asks for an instruction set that is not one of "
            f"{', '.join(native.isa_supported)}: {native.isa} is used."
        )
    if native.available and not native.openmp:
        notes.append("The compiled library was built without OpenMP and uses one thread.")
    return notes


_GPU_KERNELS = "GPU kernels are taken with KHOT_TRITON=1 only: nobody has run them on a GPU yet"
_REQUIREMENT = re.compile(
    r"""(?P<name>[\w.-]+)(\[(?P<parts>[^\]]*)\])?.*;.*extra\s*==\s*["'](?P<extra>[^"']+)"""
)


def _missing_by_extra() -> dict[str, list[str]]:
    """Read from the installed metadata, so that pyproject.toml is the only list of packages."""
    if _version("khot") is None:
        return {}
    wanted: dict[str, list[str]] = {
        extra: [] for extra in metadata.metadata("khot").get_all("Provides-Extra") or ()
    }
    parts: dict[str, list[str]] = {extra: [] for extra in wanted}
    for requirement in metadata.requires("khot") or ():
        found = _REQUIREMENT.match(requirement)
        if found is None:
            continue
        if found["name"] == "khot":  # an extra made of other extras
            parts[found["extra"]] += [part.strip() for part in found["parts"].split(",")]
        else:
            wanted[found["extra"]].append(found["name"])

    def packages(extra: str) -> list[str]:
        return [*wanted[extra], *(name for part in parts[extra] for name in packages(part))]

    return {extra: sorted({p for p in packages(extra) if _version(p) is None}) for extra in wanted}


def lines(report: Report) -> list[str]:
    """The report as text, one fact per line."""
    native = report.native
    facts = [
        ("khot", report.versions["khot"] or "not installed (running from its source tree)"),
        ("Python", f"{report.versions['Python']} on {report.platform}"),
        ("torch", f"{report.versions['torch']} (tested with {report.torch_tested})"),
        ("numpy", report.versions["numpy"] or "not installed: pip install numpy"),
        ("native library", native.path if native.available else f"not in use, {native.reason}"),
    ]
    if native.available:
        facts += [
            ("instruction set", f"{native.isa} (this CPU has {', '.join(native.isa_supported)})"),
            ("OpenMP", "yes" if native.openmp else "no"),
        ]
    else:
        facts += [
            ("C++ compiler", report.compiler or "not found"),
            ("Python headers", "found" if report.python_headers else "not found"),
        ]
    facts += [
        ("threads", f"{report.threads}, on {report.cpus} CPUs"),
        ("environment", " ".join(f"{k}={v}" for k, v in report.environment.items()) or "no switches set"),
        ("CUDA", ", ".join(report.cuda) or "no device"),
        ("Triton", f"{report.triton or 'not installed'}; {_GPU_KERNELS}"),
    ]
    for extra, missing in report.missing.items():
        hint = f'lacks {", ".join(missing)}: pip install "khot[{extra}]"' if missing else "complete"
        facts.append((f"extra {extra}", hint))
    width = max(len(name) for name, _ in facts)
    return [f"{name:<{width}}  {fact}" for name, fact in facts] + [f"note: {note}" for note in report.notes]


def run(json: bool = False) -> int:
    """Print the report; the exit code is 1 if the environment requires something that is missing."""
    report = collect()
    text = dumps(dataclasses.asdict(report), indent=2) if json else "\n".join(lines(report))
    sys.stdout.write(text + "\n")
    return int(switched_on("KHOT_REQUIRE_NATIVE") and not report.native.available)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="khot doctor",
        description="Show what is installed on this machine, what is missing, and how to get it.",
    )
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    return run(json=parser.parse_args(arguments).json)
