"""The public modules of khot, as the pages list them, and what is in them."""

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def load_documented() -> ModuleType:
    """The extension of Sphinx that knows the public modules and the pages that describe them."""
    spec = importlib.util.spec_from_file_location("documented", DOCS / "_ext" / "documented.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


documented = load_documented()


def is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def public_names() -> dict:
    """The functions and classes that the public modules list, by their full names."""
    return {
        f"{module}.{name}": found
        for module in documented.MODULES
        for name in importlib.import_module(module).__all__
        if inspect.isfunction(found := getattr(importlib.import_module(module), name))
        or inspect.isclass(found)
    }
