"""The commit that a measurement names is khot's own, or none."""

import subprocess

import pytest

from khot.compare.machine import find_commit

SOURCE = "src/khot/compare/machine.py"


@pytest.fixture
def repository(tmp_path):
    """A repository with khot's layout and one commit."""
    for name in (SOURCE, "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return tmp_path


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_its_own_repository(repository):
    found = find_commit(repository / SOURCE)
    assert found.id == git(repository, "rev-parse", "HEAD")
    assert not found.dirty
    (repository / "README.md").write_text("changed\n")
    assert not find_commit(repository / SOURCE).dirty
    (repository / SOURCE).write_text("changed\n")
    assert find_commit(repository / SOURCE).dirty


@pytest.mark.parametrize("ignored", [True, False])
def test_an_environment_inside_another_repository(repository, ignored):
    if ignored:
        (repository / ".gitignore").write_text(".venv/\n")
    installed = repository / ".venv/lib/python3.11/site-packages/khot/compare/machine.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("installed\n")
    assert find_commit(installed) is None


def test_no_repository(tmp_path):
    (tmp_path / "machine.py").touch()
    assert find_commit(tmp_path / "machine.py") is None


def test_a_repository_without_a_commit(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "machine.py").touch()
    git(tmp_path, "add", ".")
    assert find_commit(tmp_path / "machine.py") is None
