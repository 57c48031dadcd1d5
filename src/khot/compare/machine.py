"""The origin of a measurement: hardware, versions, commit."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Commit", "Machine", "describe_origin", "find_commit", "find_machine", "find_versions"]


@dataclass(frozen=True)
class Machine:
    """The hardware and system of a run."""

    cpu: str
    cores: int
    ram_gib: float
    os: str


@dataclass(frozen=True)
class Commit:
    """The commit of a run; `dirty` if code or build files differed from it."""

    id: str
    dirty: bool


def find_machine() -> Machine:
    """This machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(_cpu(), os.cpu_count() or 0, round(pages / 2**30, 1), _system())


def find_versions(packages: tuple[str, ...] = ()) -> dict[str, str]:
    """The versions of Python and of packages; packages that are not installed are left out."""
    found = {package: _version(package) for package in ("torch", "numpy", "khot", *packages)}
    return {
        "python": platform.python_version(),
        **{package: number for package, number in found.items() if number is not None},
    }


def find_commit(source: Path = Path(__file__)) -> Commit | None:
    """The commit of khot's source, or None when it does not run from its own git repository.

    Args:
        source: a file of khot. A copy that was installed inside another repository is not tracked there.
    """
    folder = source.resolve().parent
    if _git(folder, "ls-files", "--error-unmatch", source.name) is None:
        return None
    head, root = _git(folder, "rev-parse", "HEAD"), _git(folder, "rev-parse", "--show-toplevel")
    if head is None or root is None:
        return None
    # Results and documentation change as a consequence of a run: only what is measured counts.
    measured = ("src", "csrc", "setup.py", "pyproject.toml")
    return Commit(head, bool(_git(Path(root), "status", "--porcelain", "--", *measured)))


def describe_origin(packages: tuple[str, ...] = ()) -> str:
    """Machine, versions, commit and date in one line."""
    machine, commit = find_machine(), find_commit()
    versions = ", ".join(f"{name} {number}" for name, number in find_versions(packages).items())
    source = f", commit {commit.id[:9]}{' with changes' if commit.dirty else ''}" if commit else ""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.ram_gib:g} GiB, {machine.os}; "
        f"{versions}{source}; {today}."
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _system() -> str:
    release = ".".join(platform.release().split("-")[0].split(".")[:2])
    return " ".join([platform.system(), release, *platform.libc_ver()]).strip()


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
