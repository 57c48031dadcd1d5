"""Puts the explorer beside the pages, as one file that needs no server: `_static/explore.html`."""

from pathlib import Path

from khot.explore.document import single_file


def _write(app, exception) -> None:
    if exception is None and app.builder.format == "html":
        folder = Path(app.outdir) / "_static"
        folder.mkdir(exist_ok=True)
        (folder / "explore.html").write_text(single_file(), encoding="utf-8")


def setup(app):
    app.connect("build-finished", _write)
    return {"version": "1", "parallel_read_safe": True}
