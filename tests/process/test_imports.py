"""khot may be imported before torch and numpy; it refuses a sub-interpreter; free-threaded Python."""

import os
import subprocess
import sys
import sysconfig

import pytest

ALONE = """
import sys
assert not {"torch", "numpy"} & set(sys.modules)
import khot
from khot.kernels import loader
loader.native()
import numpy, torch
y = khot.sigmoid_topk(torch.randn(64, 1000), 5)
assert torch.allclose(y.sum(-1), torch.full((64,), 5.0), atol=1e-4)
maps = open("/proc/self/maps").read().splitlines() if sys.platform == "linux" else []
print(len({line.split()[-1] for line in maps if "libgomp" in line or "libiomp" in line or "libomp" in line}))
"""


@pytest.mark.slow
def test_khot_is_imported_first():
    """One OpenMP runtime, as if torch had been: two would wait for each other."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1


if sysconfig.get_config_var("Py_GIL_DISABLED"):

    def test_the_gil_stays_off_in_free_threaded_python():
        """A module that does not say that it needs no GIL would switch it on when it is loaded."""
        code = (
            "import sys; from khot.kernels import loader; print(loader.status().isa, sys._is_gil_enabled())"
        )
        environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
        run = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        isa, gil = run.stdout.split()
        assert (isa != "None", gil) == (True, "False")


SECOND_INTERPRETER = """
import signal
signal.alarm(100)  # importing torch in a second interpreter may wait forever
try:
    import _interpreters  # Python 3.13 and later
    run = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    run = _interpreters.run_string
code = '''
try:
    {code}
except ImportError as error:
    open({file!r}, "w").write(str(error))
'''
run(_interpreters.create(), code)
"""
# The library alone, too: a program can load it without khot.
LIBRARY = """
    import importlib.util
    spec = importlib.util.spec_from_file_location("khot._native", {path!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
"""


@pytest.mark.parametrize("what", ["khot", "library"])
def test_a_second_interpreter_is_refused_in_words(what, library, run_python, tmp_path):
    file = tmp_path / "said"
    code = "import khot" if what == "khot" else LIBRARY.format(path=library.__file__)
    run_python(SECOND_INTERPRETER.format(code=code, file=str(file)))
    # Python 3.12 and later refuse a library by themselves if it was built for them alone.
    words = ("khot works in the main interpreter alone", "does not support loading in subinterpreters")
    assert file.read_text().startswith(words[0]) or words[1] in file.read_text()
