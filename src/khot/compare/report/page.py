"""The report: one self-contained HTML file, with a plot and an explanation for every measure."""

from __future__ import annotations

import dataclasses
import html
import importlib
import json
from pathlib import Path
from typing import Any

from khot.compare.comparison import Comparison
from khot.compare.report.answer import answer
from khot.compare.report.html import table
from khot.compare.report.tables import comparison_grids

__all__ = ["check_plotly", "page"]

_TEMPLATE = Path(__file__).with_name("page.html")

_SECTIONS = {
    "overview": (
        "Quality against time",
        "The share of the weight that lies on the true top k, against the time of forward and backward. "
        "Up is nearer to the exact selection, left is cheaper. Look at the points of equal sharpness: at "
        "one temperature for all, a higher point may just be a sharper one, with less of a gradient.",
    ),
    "nccs": (
        "Selecting vectors",
        "Every entry carries a vector, and the operator returns k blends. nCCS is the mean over the true "
        "k vectors of the best cosine among the blends: 1 if each is there. It tells operators that "
        "separate the ranks from those that mix all chosen ones. Operators that give weights alone have "
        "no bar.",
    ),
    "recall": (
        "Does it rank as the scores do?",
        "The share of the true top k among the k largest weights. Below 1 the weights are in another "
        "order than the scores: by design where noise decides (gumbel, perturbed), elsewhere because "
        "neighbours share their weight.",
    ),
    "entropy": (
        "How sharp",
        "0 if weights are hard, 1 if all are k/n. At one temperature operators are of very different "
        "sharpness; the second bars must lie on the dotted line, or the operator cannot be matched.",
    ),
    "gradient": (
        "How much gradient arrives",
        "The norm of the gradient of the scores, for an incoming gradient with independent normal "
        "entries. Sharper weights have a larger gradient in fewer places; 0 means that nothing can be "
        "learned.",
    ),
    "usable": (
        "And where",
        "The share of scores whose gradient is at least a thousandth of the largest in their row. With a "
        "small share, only the entries next to the cut learn. Exact zeros are part of a sparse operator's"
        " design.",
    ),
    "time": (
        "Time",
        "Shortest of repeated calls on all rows at the fixed temperature, forward and backward, each by "
        "itself. The axis is logarithmic. Your own shapes: khot compare --n … --k ….",
    ),
    "memory": (
        "Memory",
        "What one call takes at its peak beyond its input, results included, at temperature 1, each "
        "operator in a process of its own. A figure near 0: the pages the process had were enough.",
    ),
}


def check_plotly() -> None:
    """Raise `ModuleNotFoundError`, with how to install plotly, if it is missing."""
    try:
        importlib.import_module("plotly")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'the report needs plotly: pip install "khot[compare]"', name="plotly"
        ) from error


def page(comparison: Comparison) -> str:
    """The report as HTML, with plotly.js inside."""
    check_plotly()
    offline: Any = importlib.import_module("plotly.offline")
    options = comparison.options
    # In a script element only `</` could end the data early.
    data = json.dumps(dataclasses.asdict(comparison), allow_nan=False).replace("</", "<\\/")
    parts = {
        "ANSWER": "\n".join(_answer(comparison, number) for number in reversed(range(len(comparison.cells)))),
        "TEMPERATURE": f"{options.temperature:g}",
        "SHARPNESS": f"{options.sharpness:g}",
        "COMMAND": html.escape(options.command),
        "ORIGIN": html.escape(
            f"{comparison.origin} {options.dtype} on {options.device}, {options.threads} threads, "
            f"seed {options.seed}."
        ),
        "SECTIONS": "\n".join(_section(name, *texts) for name, texts in _SECTIONS.items()),
        "TABLE": "\n".join(table(grid) for grid in comparison_grids(comparison)),
        "DATA": data,
        "PLOTLY": offline.get_plotlyjs(),
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    # The large parts last, so that what they contain is not taken for a place to fill.
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value, 1)
    return text


def _answer(comparison: Comparison, number: int) -> str:
    found = answer(comparison, number)
    lines = "".join(
        f"<dt>{html.escape(winner.title)}</dt><dd><b>{html.escape(winner.method)}</b>: "
        f"{html.escape(winner.sentence)}.</dd>"
        for winner in found.winners
    )
    opened = " open" if number == len(comparison.cells) - 1 else ""
    return f"<details{opened}><summary>{html.escape(found.headline)}</summary><dl>{lines}</dl></details>"


def _section(name: str, title: str, explanation: str) -> str:
    heading, words = html.escape(title), html.escape(explanation)
    return (
        f'<section><h2>{heading}</h2><div class="plot" id="{name}" role="img" aria-label="{heading}"></div>'
        f"<p>{words}</p></section>"
    )
