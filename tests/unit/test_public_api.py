"""What khot exports is there, documented, and complete."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import khot
import khot.parallel
import khot.testing
import khot.vision.training
from khot.relaxations import registry


def is_result(kind: object) -> bool:
    """What a function gives, described there: a tuple with names, or a data class without an example."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, tuple) or (dataclasses.is_dataclass(kind) and ">>> " not in (kind.__doc__ or ""))


def public_names(*modules) -> dict:
    """The functions and classes that modules list, by their full names."""
    return {
        f"{module.__name__}.{name}": found
        for module in modules
        for name in module.__all__
        if (inspect.isfunction(found := getattr(module, name)) or inspect.isclass(found))
        and not is_result(found)
    }


PUBLIC = public_names(
    khot,
    khot.constraints,
    khot.vision.data,
    khot.designs,
    khot.estimators,
    khot.metrics,
    khot.nn,
    khot.parallel,
    khot.schedules,
    khot.vision,
    khot.vision.training,
)
APPLICATIONS = public_names(
    khot.designs.survey,
    khot.losses,
    khot.testing,
    *(importlib.import_module(f"khot.apps.{name}") for name in khot.apps.__all__),
)
MODULES = sorted(
    found.name
    for package in (
        khot.vision.data,
        khot.designs,
        khot.estimators,
        khot.losses,
        khot.nn,
        khot.parallel,
        khot.relaxations,
        khot.testing,
        khot.vision,
    )
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
)


def test_all_is_sorted_and_importable():
    assert khot.__all__ == sorted(khot.__all__)
    assert len(set(khot.__all__)) == len(khot.__all__)
    space = {}
    exec("from khot import *", space)
    assert set(khot.__all__) <= set(space)


def test_the_package_describes_what_it_exports():
    described = inspect.getdoc(khot)
    assert [name for name in khot.__all__ if name != "__version__" and name not in described] == []


def test_every_callable_is_documented_with_an_example():
    for name, function in PUBLIC.items():
        text = inspect.getdoc(function) or ""
        assert text.split("\n")[0].endswith("."), f"{name}: the first line is one sentence"
        assert "Example:" in text, name
        assert ">>> " in text, name


def test_every_public_name_has_an_example_that_runs():
    """In its docstring, which the doctests run, or on a page, which the tests of the pages run."""
    docs = Path(__file__).parents[2] / "docs"
    pages = [page.read_text("utf-8") for page in docs.rglob("*.md") if "_build" not in page.parts]
    blocks = [
        block for page in pages for block in re.findall(r"```py(?:con|thon)\n(.*?)```", page, re.DOTALL)
    ]
    on_pages = set(
        re.findall(r"\w+", " ".join(block for block in blocks if not block.startswith("# not run:")))
    )
    without = [
        name
        for name, found in (PUBLIC | APPLICATIONS).items()
        if ">>> " not in (inspect.getdoc(found) or "") and name.rpartition(".")[2] not in on_pages
    ]
    assert without == []


def test_every_argument_is_documented():
    missing = []
    for name, function in PUBLIC.items():
        text = inspect.getdoc(function) or ""
        if "Arguments as :class:`SigmoidTopK`" in text:  # said once
            text += inspect.getdoc(khot.nn.SigmoidTopK) or ""
        named = (p for p in inspect.signature(function).parameters if p != "settings")
        missing += [(name, p) for p in named if f"\n    {p}: " not in text]
    assert missing == []


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_operator_is_exported_with_its_reference(name):
    operator = getattr(khot, f"{name}_topk")
    assert f"{name}_topk" in khot.__all__
    assert operator is registry.get(name).weights
    assert "Reference: " in inspect.getdoc(operator)


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_operator_has_the_shared_arguments(name):
    signature = inspect.signature(registry.get(name).weights)
    assert list(signature.parameters)[:2] == ["scores", "k"]
    keywords = {p.name: p.default for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    shared = {"temperature": 1.0, "dim": -1, "mask": None, "largest": True, "hard": False}
    assert shared.items() <= keywords.items()


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_operator_has_a_module(name):
    module = "".join(word.capitalize() for word in name.split("_")) + "TopK"
    assert module in khot.nn.__all__


def test_what_a_module_lists_is_there():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        for public in getattr(module, "__all__", []):
            assert hasattr(module, public), (name, public)


def test_the_version_is_a_version():
    assert khot.__version__.split(".")[0].isdigit()
