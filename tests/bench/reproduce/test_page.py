"""The combined page holds every ledger there is, with its picture, and names what is missing."""

import dataclasses

import pytest
from typer.testing import CliRunner

from khot.compare.report.grid import Grid
from khot.compare.report.html import table
from khot_bench.commands.reproduce import app
from khot_bench.reproduce.experiments import ledger_path, load_reproduction
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.page import write_reproduction_page


@pytest.fixture
def folder(tmp_path):
    ledger = Ledger("wijk2025")
    ledger.add(
        {"part": "budget", "planted": 3, "seed": 0, "steps": 20},
        {"k at 0": 25.0, "k at 20": 3.25},
        ledger_path("wijk2025", tmp_path),
    )
    return ledger_path("wijk2025", tmp_path).parent


def test_the_page_shows_tables_and_pictures_and_needs_nothing_else(folder, tmp_path):
    (folder / "wijk2025.svg").write_text("<svg/>")
    page = tmp_path / "out" / "page.html"
    assert write_reproduction_page(folder, page)
    text = page.read_text()
    assert "3.2500 … 3.2500" in text
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in text
    assert "pietruszka2021" in text.partition("Not run yet:")[2].partition("</p>")[0]
    assert "http" not in text


def test_an_experiment_that_was_stopped_does_not_spoil_the_page(folder, tmp_path, monkeypatch):
    def tables(ledger):
        raise KeyError("a run that is not there")

    stopped = dataclasses.replace(load_reproduction("wijk2025"), tables=tables)
    monkeypatch.setattr("khot_bench.reproduce.page.load_reproduction", lambda name: stopped)
    assert write_reproduction_page(folder, tmp_path / "page.html")
    assert "1 runs" in (tmp_path / "page.html").read_text()


def test_an_empty_folder_gives_no_page(tmp_path):
    assert not write_reproduction_page(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_command_writes_it_where_the_runs_are_or_into_the_report(folder, tmp_path):
    result = CliRunner().invoke(app, ["--report", "--root", str(tmp_path)])
    assert result.exit_code == 0
    assert (tmp_path / "report" / "reproduce.html").exists()
    CliRunner().invoke(app, ["--report", "--output", str(folder)])
    assert (folder / "index.html").exists()
    empty = CliRunner().invoke(app, ["--report", "--root", str(tmp_path / "empty")])
    assert "khot reproduce all" in empty.output


def test_a_table_is_escaped():
    text = table(Grid("a < b", ("x", "y"), (("**name**", "1 & 2"),), ("note",), "origin"))
    assert "a &lt; b" in text
    assert '<td class="text">name</td><td>1 &amp; 2</td>' in text
    assert "note<br>origin" in text
