"""`make venv` with a stand-in for Python: what it calls, what it keeps, and one line for each thing missing.

The stand-in notes its calls and installs nothing, so no test here needs a network or more than a second.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")

# Environments are made by copying it, so .venv/bin/python is it too.
STAND_IN = """#!/bin/sh
case "$*" in
    "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python; exit ;;
    "-m pip install "*)
        echo "pip: $*" >>calls
        echo "output of pip"
        [ ! -e hang ] || sleep 60
        [ -e network ]
        exit
        ;;
    "setup.py build_ext "*)
        echo "compile" >>calls
        [ -e compiler ] && touch src/khot/_native.abi3.so
        exit
        ;;
    "-m pip --version" | "-c import numpy, pytest, torch") exit ;;
    "-") [ ! -e unloadable ]; exit ;;
esac
exec "{python}" "$@"
"""


class Project:
    """A folder with what `make venv` reads, and switches (files) that the stand-in obeys."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("csrc", "src/khot", "benchmarks"):
            (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copytree(ROOT / "tools", folder / "tools")
        for name in ("pyproject.toml", "benchmarks/pyproject.toml", "setup.py", "csrc/kernel.cpp"):
            (folder / name).touch()
        for switch in ("network", "compiler"):
            (folder / switch).touch()
        (folder / "constraints.txt").write_text("torch==2.13.0\nnumpy==2.4.6\n")
        self.python = self.interpreter(STAND_IN.format(python=sys.executable))

    def interpreter(self, script: str) -> str:
        path = self.folder / "stand-in for python"
        path.write_text(script)
        path.chmod(0o755)
        return str(path)

    def environment(self, **variables: str) -> dict[str, str]:
        """What a shell would have outside of `make test` and of any environment."""
        own = ("MAKE", "MFLAGS", "PYTHON", "TORCH", "PIP_", "KHOT_", "CC", "CXX", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {**kept, **variables}

    def make(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=self.folder,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """What pip and the compiler were called with since the last question."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def switch(self, name: str, on: bool) -> None:
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()

    def ready(self) -> bool:
        return (self.folder / ".venv/set-up.stamp").exists()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "a folder with spaces")


@pytest.fixture
def done(project: Project) -> Project:
    result = project.make("venv", f"PYTHON={project.python}")
    assert result.returncode == 0, result.stderr
    assert project.ready()
    project.calls()
    return project


def the_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal: make's own `make: *** …` follows it."""
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_help_is_the_default_and_names_every_target(project: Project):
    result = project.make()
    assert result.returncode == 0
    makefile = (ROOT / "Makefile").read_text()
    documented = [line.split(":")[0] for line in makefile.splitlines() if ":" in line and " ## " in line]
    assert {"venv", "test", "test-all", "check", "docs", "clean"} <= set(documented)
    for target in documented:
        assert f"make {target} " in result.stdout
    assert not (project.folder / ".venv").exists()


def test_a_first_set_up_installs_once_and_compiles(project: Project):
    result = project.make("venv", f"PYTHON={project.python}")
    assert result.returncode == 0, result.stderr
    pip, compiler = project.calls()
    assert "-c constraints.txt" in pip
    assert pip.endswith("-e .[dev] -e ./benchmarks")
    assert compiler == "compile"
    assert "output of pip" not in result.stdout


def test_a_second_call_does_nothing(done: Project):
    result = done.make("venv")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert done.calls() == []


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "benchmarks/pyproject.toml", "constraints.txt", "setup.py"]
)
def test_a_changed_requirement_is_installed(done: Project, name: str):
    with (done.folder / name).open("a") as file:
        file.write("# changed\n")
    assert done.make("venv").returncode == 0
    assert done.calls()[0].startswith("pip: ")
    assert done.make("venv").returncode == 0
    assert done.calls() == []


def test_a_changed_kernel_is_compiled_and_nothing_installed(done: Project):
    (done.folder / "csrc/kernel.cpp").write_text("// changed\n")
    assert done.make("venv").returncode == 0
    assert done.calls() == ["compile"]


def test_clean_keeps_the_environment_and_compiles_again(done: Project):
    assert done.make("clean").returncode == 0
    assert not (done.folder / "src/khot/_native.abi3.so").exists()
    assert done.make("venv").returncode == 0
    assert done.calls() == ["compile"]


def test_a_moved_folder_is_installed_again(done: Project):
    done.folder = done.folder.rename(done.folder.with_name("moved"))
    assert done.make("venv").returncode == 0
    assert done.calls()[0].startswith("pip: ")


def test_the_documentation_has_a_stamp_of_its_own(done: Project):
    def set_up() -> list[str]:
        subprocess.run(["tools/set_up_venv.sh", "docs"], cwd=done.folder, env=done.environment(), check=True)
        return done.calls()

    (pip,) = set_up()
    assert pip.endswith("-e .[docs] -e ./benchmarks")
    assert set_up() == []


def test_pip_args_reach_pip_and_are_remembered(project: Project):
    project.make("venv", f"PYTHON={project.python}", 'PIP_ARGS=--no-index --find-links "my wheels"')
    assert "--no-index --find-links my wheels -c" in project.calls()[0]
    assert project.make("venv").returncode == 0
    assert project.calls() == []
    (project.folder / "pyproject.toml").write_text("# changed\n")
    project.make("venv")
    assert "--no-index --find-links my wheels -c" in project.calls()[0]


def test_pip_args_that_failed_are_not_remembered(project: Project):
    project.switch("network", on=False)
    assert project.make("venv", f"PYTHON={project.python}", "PIP_ARGS=--no-index").returncode != 0
    assert "--no-index" in project.calls()[0]
    project.switch("network", on=True)
    assert project.make("venv").returncode == 0
    assert "--no-index" not in project.calls()[0]


def test_other_pip_args_are_used(done: Project):
    assert done.make("venv", "PIP_ARGS=--pre").returncode == 0
    assert " --pre " in done.calls()[0]


def test_torch_takes_the_place_of_its_pin(done: Project):
    assert done.make("venv", "TORCH=torch==2.14.*").returncode == 0
    pip = done.calls()[0]
    assert " torch==2.14.* " in pip
    assert "-c .venv/constraints.txt" in pip
    assert (done.folder / ".venv/constraints.txt").read_text() == "numpy==2.4.6\n"


def test_no_python(project: Project):
    assert "install Python 3.10 or newer" in the_line(project.make("venv", "PYTHON=/nonexistent/python3"))


def test_python_that_does_not_run(project: Project):
    # What a version manager's shim does when the version is not chosen.
    python = project.interpreter("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    assert "does not run" in the_line(project.make("venv", f"PYTHON={python}"))


@pytest.mark.parametrize("version", ["(2, 7, 18)", "(3, 6, 15)", "(3, 9, 18)"])
def test_python_too_old(project: Project, version: str):
    pretend = f'#!/bin/sh\nexec "{sys.executable}" -c "import sys; sys.version_info = {version}; $2"\n'
    line = the_line(project.make("venv", f"PYTHON={project.interpreter(pretend)}"))
    assert "too old" in line
    assert "needs 3.10 or newer" in line
    assert not (project.folder / ".venv").exists()


def test_no_ensurepip(project: Project):
    hide = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    python = project.interpreter(f'#!/bin/sh\nexec "{sys.executable}" -c "{hide}" "$2"\n')
    line = the_line(project.make("venv", f"PYTHON={python}"))
    assert "apt-get install python3-venv" in line
    assert not (project.folder / ".venv").exists()


def test_no_compiler_goes_on(project: Project):
    project.switch("compiler", on=False)
    result = project.make("venv", f"PYTHON={project.python}", CC="/bin/false", CXX="/bin/false")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "compiler" in line]
    assert len(lines) == 1
    assert "portable path" in lines[0]
    assert "apt-get install g++" in lines[0]
    project.calls()
    project.switch("compiler", on=True)
    assert project.make("venv").returncode == 0
    assert project.calls() == ["compile"]


def test_no_compiler_where_one_is_required(done: Project):
    done.switch("compiler", on=False)
    (done.folder / "csrc/kernel.cpp").write_text("// changed\n")
    line = the_line(done.make("venv", CC="/bin/false", CXX="/bin/false", KHOT_REQUIRE_NATIVE="1"))
    assert "KHOT_REQUIRE_NATIVE" in line
    assert "apt-get install g++" in line
    # A library older than its sources must not be left to be imported.
    assert not (done.folder / "src/khot/_native.abi3.so").exists()


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_a_kernel_that_does_not_compile_is_an_error(done: Project):
    done.switch("compiler", on=False)
    (done.folder / "csrc/kernel.cpp").write_text("a mistake\n")
    line = the_line(done.make("venv", CC="g++", CXX="g++"))
    assert "csrc" in line
    assert "KHOT_NO_NATIVE=1" in line
    assert done.make("venv", KHOT_NO_NATIVE="1").returncode == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_a_kernel_that_does_not_load_is_an_error_and_removed(done: Project):
    done.switch("unloadable", on=True)
    (done.folder / "csrc/kernel.cpp").write_text("// changed\n")
    assert "csrc does not compile or load" in the_line(done.make("venv", CC="g++", CXX="g++"))
    assert not (done.folder / "src/khot/_native.abi3.so").exists()


def test_pip_that_fails_keeps_its_log_and_is_run_again(project: Project):
    project.switch("network", on=False)
    result = project.make("venv", f"PYTHON={project.python}")
    assert result.returncode != 0
    assert "    output of pip" in result.stderr
    last = [line for line in result.stderr.splitlines() if line.startswith("set-up:")]
    assert len(last) == 1
    assert ".venv/set-up.log" in last[0]
    assert (project.folder / ".venv/set-up.log").read_text() == "output of pip\n"
    assert not project.ready()
    project.switch("network", on=True)
    assert project.make("venv").returncode == 0
    assert project.ready()


def test_an_interrupted_set_up_is_repaired(project: Project):
    project.switch("hang", on=True)
    process = subprocess.Popen(
        ["make", "venv", f"PYTHON={project.python}"],
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (project.folder / "calls").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert project.calls()
    assert not project.ready()
    packages = project.folder / ".venv/lib/python3/site-packages"
    for package, record in (("whole", True), ("half", False)):
        (packages / f"{package}-1.0.dist-info").mkdir(parents=True)
        if record:
            (packages / f"{package}-1.0.dist-info/RECORD").touch()
    project.switch("hang", on=False)
    assert project.make("venv").returncode == 0
    assert project.ready()
    assert [path.name for path in packages.iterdir()] == ["whole-1.0.dist-info"]


def test_a_failed_change_taken_back_is_installed_again(done: Project):
    # pip may have replaced half of the packages when it failed, so the old stamp must be gone.
    done.switch("network", on=False)
    (done.folder / "pyproject.toml").write_text("# changed\n")
    assert done.make("venv").returncode != 0
    done.switch("network", on=True)
    (done.folder / "pyproject.toml").write_text("")
    done.calls()
    assert done.make("venv").returncode == 0
    assert done.calls()[0].startswith("pip: ")


def test_another_interpreter_makes_another_environment(done: Project):
    describe = '"-c "*base_prefix*) echo "3.12.0 /elsewhere"; exit ;;'
    other = done.interpreter(STAND_IN.format(python=sys.executable).replace("esac", f"    {describe}\nesac"))
    assert done.make("venv", f"PYTHON={other}").returncode == 0
    assert (done.folder / ".venv/bin/python").read_text() == Path(other).read_text()
    assert done.calls()[0].startswith("pip: ")
    # It stays when none is named, or the same.
    for arguments in ((), (f"PYTHON={other}",)):
        assert done.make("venv", *arguments).returncode == 0
        assert done.calls() == []


def test_an_environment_without_pip_is_made_again(done: Project):
    (done.folder / ".venv/set-up.stamp").unlink()
    without_pip = f'#!/bin/sh\n[ "$2" != pip ] && exec "{sys.executable}" "$@"\n'
    (done.folder / ".venv/bin/python").write_text(without_pip)
    assert done.make("venv", f"PYTHON={done.python}").returncode == 0
    assert done.ready()
    assert (done.folder / ".venv/bin/python").read_text() == Path(done.python).read_text()


TARGETS = [
    "demo",
    "test",
    "test-full",
    "test-extra",
    "test-all",
    "test-aarch64",
    "check",
    "format",
    "bench",
    "docs",
    "sanitize",
    "fuzz",
]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_sets_up_first(project: Project, target: str):
    result = project.make("-n", target)
    assert result.returncode == 0, result.stderr
    own = [line for line in result.stdout.splitlines() if not line.startswith("make ")]
    assert own[0].startswith("tools/set_up_venv.sh")


def test_all_tests_are_those_of_test_and_of_test_full(project: Project):
    """What one leaves out the other runs, and nothing else is left out."""
    lines = project.make("-n", "test-all").stdout.splitlines()
    quick, full = (line for line in lines if " -m pytest " in line)
    assert " -m 'not full'" in quick
    assert quick.replace("'not full'", "full") == full
    assert "tools/test_extra.sh" in lines


def test_extra_groups_say_what_is_missing(project: Project):
    python = project.folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$1" != -c ]\n')  # tests pass, and nothing can be imported
    python.chmod(0o755)
    result = project.make("-o", "venv", "test-extra")
    assert result.returncode == 0, result.stderr
    lines = [line.split(": ", 2)[1:] for line in result.stdout.splitlines()]
    groups = [
        "R",
        "browser",
        "several processes",
        "JAX and ONNX",
        "Triton",
        "peers",
        "equations and dictionaries",
        "selectors and metric learning",
        "explorer",
        "autoencoders",
    ]
    assert [line[0] for line in lines] == groups
    assert lines[2][1] == "skipped (this torch has no torch.distributed)"
    python.write_text("#!/bin/sh\nexit 1\n")
    failed = project.make("-o", "venv", "test-extra")
    assert failed.returncode != 0
    assert "test-extra: failed: tests/extra/r" in failed.stderr


def test_fuzzing_says_what_is_missing(project: Project):
    tools = project.folder / "tools of this test"
    tools.mkdir()
    for tool in ("dirname", "make", "sh"):  # and no compiler
        (tools / tool).symlink_to(str(shutil.which(tool)))
    result = project.make("-o", "venv", "fuzz", "PARTS=kernels threads", PATH=str(tools))
    assert result.returncode == 0, result.stderr
    assert [line.split(" (")[0] for line in result.stdout.splitlines()] == [
        "fuzz: kernels: skipped",
        "fuzz: threads: skipped",
    ]
    assert result.stdout.count("apt-get install clang") == 2
    wrong = project.make("-o", "venv", "fuzz", "PARTS=kernel")
    assert wrong.returncode != 0
    assert "fuzz: kernels, plain, threads or api, got kernel" in wrong.stderr


def test_slow_tests_run_last(tmp_path: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "test_order.py").write_text(
        "import pytest\n\n@pytest.mark.slow\ndef test_b(): pass\n\ndef test_c(): pass\n\ndef test_a(): pass\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "quick_tests_first", "--collect-only", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
    )
    order = [line.split("::")[1] for line in result.stdout.splitlines() if "::" in line]
    assert order == ["test_c", "test_a", "test_b"]
