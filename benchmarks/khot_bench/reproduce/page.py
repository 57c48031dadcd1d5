"""One page over all reproductions that have been run: their tables and pictures."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path

from khot.compare.report.html import table
from khot.files.whole import write_text
from khot_bench.reproduce.experiments import load_reproduction, reproduction_names
from khot_bench.reproduce.ledger import load_ledger

__all__ = ["reproduction_page", "write_reproduction_page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78rem; padding: 1rem;
  overflow-wrap: anywhere; }
img { max-width: 100%; background: white; }
.scroll { overflow-x: auto; }
.origin { font-size: 0.85rem; opacity: 0.8; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; }
th, td { padding: 0.2rem 0.6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
th:first-child, td.text { text-align: left; }
"""


def write_reproduction_page(folder: Path, path: Path) -> bool:
    """Write the page over the ledgers in a folder; False if there is none."""
    ledgers = {name: folder / f"{name}.json" for name in reproduction_names()}
    found = {name: ledger for name, ledger in ledgers.items() if ledger.exists()}
    if found:
        write_text(reproduction_page(found), path)
    return bool(found)


def reproduction_page(ledgers: Mapping[str, Path]) -> str:
    """The page as HTML that needs nothing else, from ledgers by the name of their reproduction."""
    missing = [name for name in reproduction_names() if name not in ledgers]
    todo = f"<p>Not run yet: {', '.join(missing)}.</p>" if missing else ""
    links = " · ".join(f'<a href="#{name}">{name}</a>' for name in ledgers)
    sections = "\n".join(_section(name, path) for name, path in ledgers.items())
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>khot reproduce</title>\n<link rel="icon" href="data:,">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<h1>Reproduced experiments</h1>\n<p>{links}</p>\n"
        f"{todo}\n{sections}\n</body>\n</html>\n"
    )


def _section(name: str, path: Path) -> str:
    reproduction, ledger = load_reproduction(name), load_ledger(name, path)
    picture = path.with_suffix(".svg")
    try:
        grids = reproduction.tables(ledger)
    except (LookupError, ValueError, ArithmeticError):
        grids = ()  # of an experiment that was stopped; its next run completes it
    tables = "\n".join(f'<div class="scroll">{table(grid)}</div>' for grid in grids)
    shown = _picture(picture, reproduction.title) if picture.exists() else ""
    runs = f'<p class="origin">{len(ledger.runs)} runs, <code>khot reproduce {name}</code></p>'
    title = html.escape(f"{name}: {reproduction.title}")
    return f'<section id="{name}">\n<h2>{title}</h2>\n{runs}\n{shown}\n{tables}\n</section>'


def _picture(path: Path, title: str) -> str:
    # As an image rather than inline: pictures of matplotlib share the names of their parts.
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(title)}" src="data:image/svg+xml;base64,{data}">'
