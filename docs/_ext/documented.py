"""Fail the build when a public name of khot is on no API page.

A test reads the same list (``tests/unit/test_public_api.py``), so Sphinx is not imported with this file.
"""

import importlib
import re
from pathlib import Path

MODULES = (
    "khot",
    "khot.apps.beam",
    "khot.apps.dictionary",
    "khot.apps.features",
    "khot.apps.moe",
    "khot.apps.neighbors",
    "khot.apps.sae",
    "khot.apps.sindy",
    "khot.apps.sparse",
    "khot.constraints",
    "khot.designs",
    "khot.designs.survey",
    "khot.estimators",
    "khot.interop.jax",
    "khot.interop.numpy",
    "khot.losses",
    "khot.metrics",
    "khot.nn",
    "khot.parallel",
    "khot.relaxations",
    "khot.schedules",
    "khot.testing",
    "khot.vision",
    "khot.vision.data",
    "khot.vision.training",
)
_ENTRY = re.compile(r"^\.\. (?:auto\w+|module):: (\S+)$", re.MULTILINE)


def missing_names(pages: Path) -> list[str]:
    """The public names that the pages below ``pages`` do not document."""
    documented = {name for page in pages.glob("*.md") for name in _ENTRY.findall(page.read_text("utf-8"))}
    objects = {_find(name) for name in documented}
    missing = []
    for module in map(importlib.import_module, MODULES):
        public = [f"{module.__name__}.{name}" for name in module.__all__ if name != "__version__"]
        missing += [name for name in public if name not in documented and _find(name) not in objects]
    return missing


def _find(name: str) -> int:
    """The identity of what a dotted name means: an alias is documented with what it stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return id(found)
    raise LookupError(f"an API page documents {name}, which is not there")


def _require_all_documented(app) -> None:
    from sphinx.errors import ExtensionError

    missing = missing_names(Path(app.srcdir) / "api")
    if missing:
        raise ExtensionError(f"no page in docs/api/ documents {', '.join(missing)}")


def setup(app):
    app.connect("builder-inited", _require_all_documented)
    return {"version": "1", "parallel_read_safe": True}
