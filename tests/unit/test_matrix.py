"""`make test-matrix` with stand-ins for interpreters: what it says of each, and when it fails.

A stand-in answers as Python and pip would, so that nothing is installed here.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ["sh", "sed", "ls", "mkdir", "tee", "dirname", "rm", "id", "grep", "tail", "tr", "cp", "env"]

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")

# `python -m venv FOLDER` copies it, so that the environment's interpreter is it too.
STAND_IN = """#!/bin/sh
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *" --dry-run "*) {packages} ;;
    "-m pip install "*) echo "$@" ;;
    "-m pytest "*) echo "{result}"; exit {status} ;;
    "-c "*) echo "Python 3.12.1, torch 2.13.0, NumPy 2.4.6" ;;
    "- "*) ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    for name in ("tools", "dist", "bin"):
        (tmp_path / name).mkdir()
    for name in ("tools/test_matrix.sh", "tools/test_installed.sh", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "dist" / "khot-0-cp310-abi3-linux.whl").touch()
    (tmp_path / "dist" / "khot-0.tar.gz").touch()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def interpreter(project: Path, name: str, packages: str = "torch", failures: int = 0) -> None:
    result = f"{failures} failed, 7 passed in 1.2s" if failures else "7 passed in 1.2s"
    report = f"""echo '        "name": "{packages}",'""" if packages else ":"
    path = project / "bin" / name
    path.write_text(STAND_IN.format(packages=report, result=result, status=int(failures > 0)))
    path.chmod(0o755)


def run(project: Path, *words: str) -> tuple[int, dict[str, str]]:
    """The exit code and the table."""
    environment = {"PATH": str(project / "bin"), "HOME": str(project)}  # no pyenv there
    done = subprocess.run(
        ["sh", "tools/test_matrix.sh", *words], cwd=project, env=environment, capture_output=True, text=True
    )
    assert (project / ".venv-matrix" / "table").read_text() == done.stdout
    rows = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    return done.returncode, {name: result.strip() for name, result in rows}


def test_what_is_not_here_is_untested(project):
    code, table = run(project)
    assert code == 0
    assert [f"python3.{minor}" for minor in range(10, 15)] == list(table)[:5]
    assert all(result.startswith("untested: ") for result in table.values())
    assert table["python3.12"] == "untested: there is no python3.12"
    assert "debootstrap" in table["debian-trixie"]


def test_what_is_here_is_tested(project):
    interpreter(project, "python3.12")
    code, table = run(project, "3.12")
    assert code == 0
    assert table == {"python3.12": "passed: Python 3.12.1, torch 2.13.0, NumPy 2.4.6: 7 passed in 1.2s"}
    assert not (project / ".venv-matrix" / "python3.12").exists()


def test_a_free_threaded_python_gets_the_source_archive(project):
    for name in ("python3.13", "python3.13t"):
        interpreter(project, name)
    code, table = run(project, "3.13")
    assert code == 0
    assert all(table[name].startswith("passed: ") for name in ("python3.13", "python3.13t"))
    for name, package in (("python3.13", "khot-0-cp310-abi3-linux.whl"), ("python3.13t", "khot-0.tar.gz")):
        assert f"--no-deps dist/{package}" in (project / ".venv-matrix" / f"{name}.log").read_text()


def test_a_failure_is_an_error_and_keeps_its_environment(project):
    interpreter(project, "python3.11", failures=1)
    code, table = run(project, "3.11")
    assert code == 1
    assert set(table) == {"python3.11", "python3.11-numpy1.26", "python3.11-torch-oldest"}
    assert all(result.startswith("failed: ") and "1 failed" in result for result in table.values())
    assert (project / ".venv-matrix" / "python3.11" / "bin" / "python").exists()


def test_what_cannot_be_installed_says_why(project):
    interpreter(project, "python3.13", packages="")
    interpreter(project, "python3.14", packages="nvidia-cudnn-cu13")
    code, table = run(project, "3.13", "3.14")
    assert code == 0
    assert "is not available; without torch: the files compile" in table["python3.13"]
    assert "CUDA libraries only" in table["python3.14"]
    assert not (project / ".venv-matrix" / "python3.14").exists()
