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
        "The share of the weight on the true top k, against the time of forward and backward. Higher is "
        "closer to the exact selection, further left is faster. Compare the points of equal sharpness: at "
        "a fixed temperature, a higher point may only be sharper, with a gradient for fewer scores.",
    ),
    "nccs": (
        "Selecting vectors",
        "Every entry has a vector, and the operator returns k blends. For each of the true k vectors, nCCS "
        "takes the best cosine among the blends, and averages these: 1 if all true vectors are found. It "
        "is high for operators that separate the ranks, and low for those that mix all chosen entries. "
        "Operators that only give weights have no bar.",
    ),
    "recall": (
        "Do the weights keep the order of the scores?",
        "The share of the true top k among the k largest weights. Below 1, the weights have a different "
        "order from the scores: because of noise (gumbel, perturbed), or because neighbours share their "
        "weight (other operators).",
    ),
    "entropy": (
        "Sharpness",
        "The entropy is 0 if the weights are hard, 1 if all are k/n. At a fixed temperature the operators "
        "differ much in sharpness. The second bars should end at the dotted line; if one does not, the "
        "operator cannot reach this entropy.",
    ),
    "gradient": (
        "Size of the gradient",
        "The norm of the gradient of the scores, for an incoming gradient with independent normal "
        "entries. Sharper weights have a larger gradient for fewer scores; 0 means that nothing can be "
        "learned.",
    ),
    "usable": (
        "Scores with a usable gradient",
        "The share of scores whose gradient is at least a thousandth of the largest in their row. If the "
        "share is small, only the entries next to the cut learn. A sparse operator has exact zeros by "
        "design.",
    ),
    "time": (
        "Time",
        "The shortest of repeated calls on all rows at the fixed temperature, separately for forward and "
        "backward. The axis is logarithmic. For your own shapes: khot compare --n … --k ….",
    ),
    "memory": (
        "Memory",
        "The peak memory of one call in addition to its input, including the results, at temperature 1, "
        "with a separate process for each operator. Near 0 the process already had enough memory.",
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
