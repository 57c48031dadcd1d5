"""The sizes of exported graphs are written, read and shown."""

import dataclasses
import json

from typer.testing import CliRunner

from khot_bench.commands import export as command
from khot_bench.commands.bench import app
from khot_bench.exported import OPSET, Exported, Row, exported_table, load_exported

FOUND = Exported(
    rows=(Row("`hard_topk(x, 5)`", 20, 25, 0.0), Row("a network", 90, 120, 1.2e-7)),
    opset=OPSET,
    command="khot bench export",
    origin="a machine",
)


def test_the_table_shows_both_sizes():
    grid = exported_table(FOUND)
    assert f"opset {OPSET}" in grid.caption
    assert grid.rows[1] == ("a network", "90", "120", "1e-07")


def test_it_is_written_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "run_exported", lambda report, words: FOUND)
    path = tmp_path / "benchmarks" / "results" / "export.json"
    path.parent.mkdir(parents=True)
    assert CliRunner().invoke(app, ["export", "--root", str(tmp_path)]).exit_code == 0
    assert load_exported(tmp_path) == FOUND
    assert json.loads(path.read_text("utf-8"))["rows"][0] == dataclasses.asdict(FOUND.rows[0])


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["export"])
    assert result.exit_code == 1
    assert 'pip install "khot[onnx]"' in result.output
