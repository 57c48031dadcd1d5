"""What users get: the files of the wheel, listed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {
    "__init__.py",
    "__main__.py",
    "_interpreter.py",
    "apps",
    "calibration.py",
    "cli",
    "compare",
    "constraints.py",
    "designs",
    "estimators",
    "explore",
    "files",
    "interop",
    "kernels",
    "losses",
    "metrics",
    "nn",
    "parallel",
    "py.typed",
    "relaxations",
    "schedules.py",
    "testing",
    "vision",
}
DATA = {
    "khot/py.typed",
    "khot/compare/report/page.html",
    "khot/explore/page/explore.css",
    "khot/explore/page/explore.js",
    "khot/explore/page/local.js",
    "khot/explore/page/page.html",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The names in a wheel without compiled kernels, built from a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    built = ("_native*", "__pycache__", "*.egg-info", "_build")
    for name in ("src", "benchmarks/khot_bench", "tests/strategies", "docs/_static"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(*built))
    for name in (
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "MANIFEST.in",
        "benchmarks/pyproject.toml",
    ):
        shutil.copy(ROOT / name, copy / name)
    build = "import setuptools.build_meta as b, sys; sys.stderr.write(b.build_wheel('wheel'))"
    environment = {**os.environ, "KHOT_NO_NATIVE": "1"}
    subprocess.run([sys.executable, "-c", build], cwd=copy, env=environment, capture_output=True, check=True)
    (wheel,) = copy.glob("wheel/khot-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_parts_of_the_package(files):
    assert {name.split("/")[1] for name in files if name.startswith("khot/")} == PARTS


def test_nothing_beside_the_package(files):
    beside = {name for name in files if not name.startswith("khot/")}
    assert {name.partition(".dist-info/")[0].partition("-")[0] for name in beside} == {"khot"}
    assert all(".dist-info/" in name for name in beside)


def test_every_module_and_the_listed_data(files):
    source = ROOT / "src"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert {name for name in files if name.startswith("khot/")} == modules | DATA
