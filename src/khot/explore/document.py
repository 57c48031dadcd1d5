"""The page as text: to be served together with its parts, or as one file that needs no server."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from khot.designs import names as design_names
from khot.explore.state import LOSSES, MAX_DRAWS, MAX_N, MAX_SIDES
from khot.relaxations import registry

__all__ = ["asset", "plotly_source", "served_page", "single_file"]

_FOLDER = Path(__file__).with_name("page")
#: What a browser computes by itself.
LOCAL_METHODS = ("sigmoid", "laplace", "sparse")
LOCAL_DESIGNS = ("systematic", "random_systematic")


def asset(name: str) -> str:
    """The content of one part of the page."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def plotly_source() -> str:
    """The source of plotly.js, from the plotly package."""
    try:
        offline: Any = importlib.import_module("plotly.offline")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'the explorer needs plotly: pip install "khot[explore]"', name="plotly"
        ) from error
    return offline.get_plotlyjs()


def served_page() -> str:
    """The page that gets its numbers from the server."""
    head = '<link rel="stylesheet" href="explore.css">'
    scripts = "".join(f'<script src="{name}" defer></script>' for name in ("plotly.js", "explore.js"))
    return _filled(head, _options(registry.names(), design_names(), local=False), scripts)


def single_file() -> str:
    """One file with everything inside, for the operators that a browser computes by itself."""
    head = f"<style>{asset('explore.css')}</style>"
    scripts = "".join(
        f"<script>{source}</script>" for source in (plotly_source(), asset("local.js"), asset("explore.js"))
    )
    return _filled(head, _options(list(LOCAL_METHODS), list(LOCAL_DESIGNS), local=True), scripts)


def _options(methods: list[str], designs: list[str], *, local: bool) -> dict[str, Any]:
    limits = {"maxN": MAX_N, "maxSides": MAX_SIDES, "maxDraws": MAX_DRAWS}
    return {"methods": methods, "designs": designs, "losses": LOSSES, "local": local, **limits}


def _filled(head: str, options: dict[str, Any], scripts: str) -> str:
    data = json.dumps(options).replace("</", "<\\/")
    text = asset("page.html")
    for place, value in (("@HEAD@", head), ("@OPTIONS@", data), ("@SCRIPTS@", scripts)):
        text = text.replace(place, value, 1)
    return text
