"""What khot exports is there, documented, and complete."""

import importlib
import importlib.util
import inspect
import pkgutil
import re

import pytest

import khot
import khot.parallel
import khot.testing
import khot.vision.training
from khot.relaxations import registry
from strategies.public_names import DOCS, documented, is_error, public_names

#: Public names whose docstrings have no example that runs, and why.
EXAMPLE_ELSEWHERE = {
    "khot.testing.check_relaxation": "takes a minute; relaxation_checks runs one of its checks",
}


def is_result(kind: object) -> bool:
    """A tuple with named fields, which its docstring describes in sentences."""
    return isinstance(kind, type) and issubclass(kind, tuple)


PUBLIC = public_names()
MODULES = sorted(
    found.name
    for package in (
        khot.vision.data,
        khot.designs,
        khot.estimators,
        khot.interop,
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


def test_every_public_name_has_a_summary():
    for name, found in PUBLIC.items():
        first, *others = (inspect.getdoc(found) or "").split("\n")
        assert first.endswith("."), f"{name}: the first line is one sentence"
        assert not others or others[0] == "", f"{name}: an empty line follows the first"
        assert "__doc__" in vars(found) or inspect.isfunction(found), f"{name}: its docstring is inherited"


def test_every_public_name_has_an_example_that_runs():
    """The doctests run it, so it must not be skipped."""
    without = [
        name
        for name, found in PUBLIC.items()
        if ">>> " not in (text := inspect.getdoc(found) or "") or "+SKIP" in text
    ]
    assert set(without) <= set(EXAMPLE_ELSEWHERE), sorted(set(without) - set(EXAMPLE_ELSEWHERE))
    assert set(EXAMPLE_ELSEWHERE) <= set(PUBLIC)


def test_every_argument_is_documented():
    missing = []
    for name, found in PUBLIC.items():
        if is_result(found) or is_error(found):
            continue
        text = inspect.getdoc(found) or ""
        named = (p for p in inspect.signature(found).parameters if p != "settings")
        missing += [(name, p) for p in named if f"\n    {p}: " not in text]
    assert missing == []


def test_every_field_of_a_result_is_documented():
    missing = [
        (name, field)
        for name, found in PUBLIC.items()
        if is_result(found)
        for field in found._fields
        if f"``{field}``" not in (text := inspect.getdoc(found)) and f"\n    {field}: " not in text
    ]
    assert missing == []


def test_every_result_is_documented():
    without = [
        name
        for name, found in PUBLIC.items()
        if inspect.isfunction(found)
        and inspect.signature(found).return_annotation not in (None, "None")
        and "\nReturns:\n" not in (inspect.getdoc(found) or "")
    ]
    assert without == []


def test_every_argument_and_every_result_has_a_type():
    """Pyright says the same of most modules, but not of those that it ignores."""
    without = []
    for name, found in PUBLIC.items():
        if is_error(found):
            continue
        signature = inspect.signature(found)
        without += [(name, p.name) for p in signature.parameters.values() if p.annotation is p.empty]
        if inspect.isfunction(found) and signature.return_annotation is signature.empty:
            without.append((name, "its result"))
    assert without == []


def test_every_public_name_is_on_a_page(tmp_path):
    assert documented.missing_names(DOCS / "api") == []
    (tmp_path / "page.md").write_text(".. autofunction:: khot.topk\n")
    missing = documented.missing_names(tmp_path)
    assert "khot.topk" not in missing
    assert "khot.relaxations.topk" not in missing  # the same function
    assert "khot.sigmoid_topk" in missing


@pytest.mark.parametrize("name", registry.names())
def test_every_registered_operator_is_exported_with_its_reference(name):
    operator = getattr(khot, f"{name}_topk")
    assert f"{name}_topk" in khot.__all__
    assert operator is registry.get(name).weights
    assert "Reference: " in inspect.getdoc(operator)
    assert "Cost: " in inspect.getdoc(operator)


@pytest.mark.parametrize("name", khot.designs.names())
def test_every_registered_design_has_its_cost_and_reference(name):
    text = inspect.getdoc(khot.designs.get(name))
    assert "Reference: " in text
    assert re.search(r"\b[Cc]ost\b", text)


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
