"""The door to the commands: which one runs, what is loaded for it, and what is said where it cannot run."""

import importlib
import importlib.metadata
import sys
import types

import pytest

import khot
from khot.cli import _dispatch, main
from khot.cli._dispatch import COMMANDS, GROUP, LABORATORY


@pytest.fixture
def command(monkeypatch):
    """Stands in for khot.cli.demo; remembers its arguments and ends as it is told to."""
    calls = []

    def ending(arguments):
        calls.append(arguments)
        how = arguments[0] if arguments else ""
        if how == "Ctrl-C":
            raise KeyboardInterrupt
        if how.startswith("exit"):
            raise SystemExit({"exit 3": 3, "exit message": "a text"}.get(how))
        return 4 if how == "return" else None

    module = types.ModuleType("khot.cli.demo")
    module.main = ending
    monkeypatch.setitem(sys.modules, "khot.cli.demo", module)
    return calls


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["exit"], 0),
        (["exit 3"], 3),
        (["exit message"], 1),
        (["return"], 4),
        (["Ctrl-C"], 130),
    ],
)
def test_a_command_gets_its_arguments_and_gives_its_exit_code(command, arguments, code):
    assert main(["demo", *arguments]) == code
    assert command == [arguments]


def test_arguments_default_to_those_of_the_process(command, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["khot", "demo", "--option"])
    assert main() == 0
    assert command == [["--option"]]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(arguments, capsys):
    assert main(arguments) == 0
    text = capsys.readouterr().out
    for name, summary in {**COMMANDS, **LABORATORY}.items():
        assert f"  {name} " in text
        assert summary in text
    assert 'pip install "khot[cli]"' in text


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"khot {khot.__version__}\n"


def test_an_unknown_command_names_those_there_are(capsys):
    assert main(["dmo"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "khot: 'dmo' is no command; choose from compare, explore, train, sae, demo, doctor"
    )
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "doctor"])
@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_cli_extra(name, package, monkeypatch, capsys):
    def import_module(module):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert main([name]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == 'khot: this command needs an extra: pip install "khot[cli]"\n'


def test_another_missing_module_is_not_hidden(monkeypatch):
    def import_module(module):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        main(["compare"])


@pytest.fixture
def entry_points(monkeypatch):
    """What other packages offer, as text."""

    def offer(**sources):
        points = importlib.metadata.EntryPoints(
            importlib.metadata.EntryPoint(name, source, GROUP) for name, source in sources.items()
        )
        monkeypatch.setattr(_dispatch, "entry_points", lambda **chosen: points.select(**chosen))

    return offer


@pytest.mark.parametrize("name", LABORATORY)
def test_the_laboratory_is_missed_in_one_line(name, entry_points, monkeypatch, capsys):
    entry_points()
    for module in [module for module in sys.modules if module.startswith("khot_bench.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "khot_bench", None)
    assert main([name]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install -e benchmarks" in error


def test_a_laboratory_on_the_path_needs_no_metadata(entry_points, monkeypatch):
    entry_points()
    calls = []
    package, commands, bench = (types.ModuleType(name) for name in ("lab", "lab.commands", "lab.bench"))
    bench.main = calls.append
    for name, module in (("", package), (".commands", commands), (".commands.bench", bench)):
        monkeypatch.setitem(sys.modules, f"khot_bench{name}", module)
    assert main(["bench", "list"]) == 0
    assert calls == [["list"]]


def test_commands_of_other_packages_are_found_and_named(entry_points, monkeypatch, capsys):
    entry_points(extra="other_package.commands:run", gone="absent_package.commands:run")
    calls = []
    module = types.ModuleType("other_package.commands")
    module.run = calls.append
    monkeypatch.setitem(sys.modules, "other_package", types.ModuleType("other_package"))
    monkeypatch.setitem(sys.modules, "other_package.commands", module)
    assert main(["extra", "1"]) == 0
    assert calls == [["1"]]
    assert main(["gone"]) == 2
    assert "absent_package.commands cannot be imported" in capsys.readouterr().err
    main(["--help"])
    assert "  extra " in capsys.readouterr().out


LOADED = "import sys; from khot.cli import main; main({arguments}); print('|', *sys.modules)"


@pytest.fixture
def loaded_by(run_python):
    return lambda *arguments: set(
        run_python(LOADED.format(arguments=list(arguments))).rpartition("|")[2].split()
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor"]])
def test_what_tells_about_khot_loads_nothing_but_its_core(arguments, loaded_by):
    modules = loaded_by(*arguments)
    assert "khot.cli" in modules
    heavy = {"plotly", "matplotlib", "typer", "rich", "khot_bench", "sklearn"}
    heavy |= {"khot.compare", "khot.vision", "khot.testing"}
    assert modules & heavy == set()
    commands = {f"khot.cli.{name}" for name in COMMANDS} - {f"khot.cli.{arguments[0]}"}
    assert modules & commands == set()


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("compare", {"khot_bench", "khot.vision", "khot.cli.train"}),
        ("train", {"khot_bench", "khot.compare", "khot.vision"}),
        ("demo", {"khot_bench", "khot.compare", "khot.vision"}),
    ],
)
def test_a_command_loads_no_other(name, others, loaded_by):
    modules = loaded_by(name, "--help")
    assert f"khot.cli.{name}" in modules
    assert modules & others == set()


def test_doctor_runs_as_a_module_without_typer(run_python):
    code = (
        "import runpy, sys; sys.modules['typer'] = sys.modules['rich'] = None; "
        "sys.argv = ['khot', 'doctor']; runpy.run_module('khot', run_name='__main__')"
    )
    assert run_python(code).startswith("khot ")
