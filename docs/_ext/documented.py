"""Fail the build when a public name of khot is not on the API page."""

from pathlib import Path

from sphinx.errors import ExtensionError

import khot


def _require_all_documented(app) -> None:
    page = (Path(app.srcdir) / "api.md").read_text(encoding="utf-8")
    public = [name for name in khot.__all__ if name != "__version__"]
    missing = [name for name in public if f"khot.{name}\n" not in page]
    if missing:
        raise ExtensionError(f"docs/api.md does not document khot.{', khot.'.join(missing)}")


def setup(app):
    app.connect("builder-inited", _require_all_documented)
    return {"version": "1", "parallel_read_safe": True}
