"""Which library is loaded, and what the environment has to say."""

import importlib
import types

import pytest

from khot.kernels import loader

STATUS = "from khot.kernels import loader; s = loader.status(); "
WITHOUT_LIBRARY = "import sys; sys.modules['khot._native'] = None; "
NATIVE = """
try:
    print(loader.native())
except ImportError as error:
    print(error)
"""


@pytest.mark.usefixtures("library")
def test_library_is_used_unless_switched_off(run_python):
    code = STATUS + "print(s.available, s.reason, s.path.endswith('.so'), loader.native().ABI == loader.ABI)"
    assert run_python(code, KHOT_NO_NATIVE="0") == "True loaded True True"


@pytest.mark.parametrize(
    ("value", "on"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)]
)
def test_switches(monkeypatch, value, on):
    monkeypatch.delenv("KHOT_NO_NATIVE", raising=False)
    if value is not None:
        monkeypatch.setenv("KHOT_NO_NATIVE", value)
    assert loader.switched_on("KHOT_NO_NATIVE") is on


def test_no_native_forces_the_portable_path(run_python):
    code = (
        STATUS
        + "import sys; print(loader.native(), s.available, s.isa, 'khot._native' in sys.modules, s.reason)"
    )
    printed = run_python(code, KHOT_NO_NATIVE="1")
    assert printed == "None False None False switched off by KHOT_NO_NATIVE"


def test_without_library_the_portable_path_serves(run_python):
    printed = run_python(WITHOUT_LIBRARY + STATUS + "print(loader.native(), s.reason)")
    assert printed.startswith("None not built")


def test_require_native_without_library_is_an_import_error(run_python):
    printed = run_python(WITHOUT_LIBRARY + STATUS + NATIVE, KHOT_REQUIRE_NATIVE="1")
    assert printed.startswith("KHOT_REQUIRE_NATIVE is set, but the compiled library is not built")
    assert "\n" not in printed


def test_require_native_does_not_excuse_no_native(run_python):
    printed = run_python(STATUS + NATIVE, KHOT_REQUIRE_NATIVE="1", KHOT_NO_NATIVE="1")
    assert printed == "KHOT_REQUIRE_NATIVE is set, but the compiled library is switched off by KHOT_NO_NATIVE"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("asked", ["base", "avx512", "nonsense"])
def test_isa_caps_and_never_fails(run_python, asked):
    names = ["base", "avx2", "avx512"]
    supported = loader.status().isa_supported
    allowed = names[: names.index(asked) + 1] if asked in names else names
    best = [name for name in allowed if name in supported][-1]
    assert run_python(STATUS + "print(s.isa)", KHOT_ISA=asked) == best


@pytest.mark.usefixtures("library")
def test_supported_sets_begin_with_the_plain_one():
    assert loader.status().isa_supported[0] == "base"
    assert loader.status().isa in ("base", "avx2", "avx512")


@pytest.mark.usefixtures("library")
def test_torch_and_the_library_share_one_openmp(run_python):
    code = "from khot.kernels import loader; loader.native(); print(open('/proc/self/maps').read())"
    printed = run_python(code, KHOT_REQUIRE_NATIVE="1")
    assert "_native" in printed
    runtimes = {line.split()[-1] for line in printed.splitlines() if "libgomp" in line}
    assert len(runtimes) <= 1


@pytest.fixture
def found_instead(monkeypatch):
    """Let the loader find this in place of khot._native."""

    def replace(outcome):
        def import_module(name):
            assert name == "khot._native"
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(importlib, "import_module", import_module)
        monkeypatch.delenv("KHOT_NO_NATIVE", raising=False)
        return loader._find()

    return replace


def test_stale_library_is_refused(found_instead):
    stale = types.ModuleType("khot._native")
    stale.__file__ = "somewhere/_native.abi3.so"
    stale.ABI = loader.ABI + 1
    library, status = found_instead(stale)
    assert library is None
    assert not status.available
    assert f"ABI {loader.ABI + 1}, this version needs {loader.ABI}" in status.reason
    assert status.path == stale.__file__


def test_a_library_that_is_there_but_useless_warns_once(found_instead, monkeypatch):
    """Slower without a word is what users cannot find; a machine without a compiler is not told each time."""
    loader._decision.cache_clear()
    try:
        broken = ImportError("libgomp.so.1: cannot open shared object file")
        monkeypatch.setattr(loader, "switched_on", lambda name: False)
        found_instead(broken)
        with pytest.warns(RuntimeWarning, match="cannot be loaded: libgomp.*portable path"):
            assert loader.native() is None
        assert loader.native() is None
        loader._decision.cache_clear()
        found_instead(ModuleNotFoundError("no module named khot._native"))
        assert loader.native() is None
    finally:
        loader._decision.cache_clear()


def test_library_that_does_not_load_is_reported(found_instead):
    library, status = found_instead(ImportError("libgomp.so.1: cannot open shared object file"))
    assert library is None
    assert status.reason == "cannot be loaded: libgomp.so.1: cannot open shared object file"


def test_status_cannot_be_changed():
    with pytest.raises(AttributeError):
        loader.status().available = True
