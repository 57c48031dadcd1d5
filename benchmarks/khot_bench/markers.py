"""Keeps the tables in README.md and docs/ equal to the committed results.

A table stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; what is between is replaced. NAME is
that of a table of a suite or of the adversarial matrix, or `reproduce-` and the name of a reproduction.
"""

from __future__ import annotations

import re
from pathlib import Path

from khot.compare.report.grid import markdown
from khot.compare.schema import SchemaError
from khot_bench.adversarial.matrix import load_matrix
from khot_bench.adversarial.tables import matrix_table
from khot_bench.compiled.record import compiled_table, load_compiled
from khot_bench.distributed.record import distributed_table, load_distributed
from khot_bench.exported import exported_table, load_exported
from khot_bench.reproduce.experiments import ledger_path, load_reproduction
from khot_bench.reproduce.ledger import load_ledger
from khot_bench.results import Document, load, results_path
from khot_bench.tables import table

__all__ = ["MarkerError", "pages", "refresh", "stale"]

_MARKER = re.compile(r"^<!-- (?P<close>/?)bench:(?P<name>[\w-]+) -->[ \t]*$", re.MULTILINE)


class MarkerError(ValueError):
    """A marker that cannot be filled; the message names the file and what to do."""


def pages(root: Path) -> tuple[Path, ...]:
    """The pages that may hold tables."""
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return tuple(page for page in found if page.is_file() and "_build" not in page.parts)


def stale(root: Path) -> tuple[Path, ...]:
    """The pages whose tables are not those of the results."""
    return tuple(page for page, text in _rendered(root).items() if text != page.read_text(encoding="utf-8"))


def refresh(root: Path) -> tuple[Path, ...]:
    """Write the tables; returns the pages that changed."""
    rendered = _rendered(root)
    changed = stale(root)
    for page in changed:
        page.write_text(rendered[page], encoding="utf-8")
    return changed


def _rendered(root: Path) -> dict[Path, str]:
    documents: dict[str, Document] = {}
    return {page: _render(page, root, documents) for page in pages(root)}


def _render(page: Path, root: Path, documents: dict[str, Document]) -> str:
    text = page.read_text(encoding="utf-8")
    where = page.relative_to(root)
    pieces: list[str] = []
    end = 0
    markers = list(_MARKER.finditer(text))
    for opening, closing in zip(markers[::2], [*markers[1::2], None], strict=False):
        name = opening["name"]
        if opening["close"]:
            raise MarkerError(f"{where}: <!-- /bench:{name} --> closes nothing")
        if closing is None or not closing["close"] or closing["name"] != name:
            raise MarkerError(f"{where}: <!-- bench:{name} --> is not closed by <!-- /bench:{name} -->")
        pieces += [text[end : opening.end()], "\n", _table(name, where, root, documents)]
        end = closing.start()
    return "".join([*pieces, text[end:]])


def _table(name: str, where: Path, root: Path, documents: dict[str, Document]) -> str:
    suite = name.partition("-")[0]
    if suite == "reproduce":
        return _reproduced(name.partition("-")[2], where, root)
    try:
        if suite == "adversarial":
            return markdown(matrix_table(load_matrix(root), name))
        if suite == "compiled":
            return markdown(compiled_table(load_compiled(root)))
        if suite == "distributed":
            return markdown(distributed_table(load_distributed(root), name))
        if suite == "export":
            return markdown(exported_table(load_exported(root)))
        if suite not in documents:
            documents[suite] = load(results_path(suite, root))
        return markdown(table(documents[suite], name))
    except FileNotFoundError:
        missing = results_path(suite, root).relative_to(root)
        raise MarkerError(
            f"{where}: table {name!r} needs {missing}, which is missing; run `khot bench {suite}`"
        ) from None
    except (SchemaError, ValueError) as error:
        raise MarkerError(f"{where}: {error}") from error


def _reproduced(name: str, where: Path, root: Path) -> str:
    path = ledger_path(name, root)
    if not path.exists():
        raise MarkerError(f"{where}: needs {path.relative_to(root)}; run `khot reproduce {name}`")
    try:
        ledger = load_ledger(name, path)
        return "\n".join(markdown(grid) for grid in load_reproduction(name).tables(ledger))
    except ValueError as error:
        raise MarkerError(f"{where}: {error}") from error
