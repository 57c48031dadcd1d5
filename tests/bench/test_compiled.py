"""What was measured of torch.compile is read and shown, and programs are counted rightly."""

import dataclasses
import json

import pytest
import torch
from typer.testing import CliRunner

from khot.relaxations import registry
from khot_bench.commands import compiled as command
from khot_bench.commands.bench import app
from khot_bench.compiled import child
from khot_bench.compiled.record import Compiled, Row, compiled_table, load_compiled, operators

FOUND = Compiled(
    rows=(Row("sigmoid", 0.84, 0, 1, 1, 1.02), Row("network", failure="out of memory")),
    command="khot bench compiled",
    origin="a machine",
)


def test_the_table_shows_numbers_and_failures():
    grid = compiled_table(FOUND)
    assert grid.rows[0] == ("sigmoid", "0.8 s", "0", "1", "1", "1.02")
    assert grid.rows[1][:2] == ("network", "out of memory")


def test_random_operators_are_left_out():
    assert set(registry.names()) - set(operators()) == {"perturbed", "gumbel"}


def test_it_is_written_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "run_compiled", lambda methods, report, words, quick: FOUND)
    path = tmp_path / "benchmarks" / "results" / "compiled.json"
    path.parent.mkdir(parents=True)
    assert CliRunner().invoke(app, ["compiled", "--root", str(tmp_path)]).exit_code == 0
    assert load_compiled(tmp_path) == FOUND
    assert json.loads(path.read_text("utf-8"))["rows"][0] == dataclasses.asdict(FOUND.rows[0])


def test_a_part_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "run_compiled", lambda methods, report, words, quick: FOUND)
    result = CliRunner().invoke(app, ["compiled", "--methods", "sigmoid", "--root", str(tmp_path)])
    assert result.exit_code == 0
    assert not list(tmp_path.iterdir())
    wrong = CliRunner().invoke(app, ["compiled", "--methods", "heap", "--root", str(tmp_path)])
    assert wrong.exit_code != 0
    assert "heap" in wrong.output


@pytest.fixture
def in_seconds(monkeypatch):
    """Without Inductor: what is counted are the programs that Dynamo makes."""
    compiler = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, fullgraph: compiler(f, fullgraph=fullgraph, backend="eager")
    )
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("in_seconds")
@pytest.mark.full
def test_temperatures_do_not_make_new_programs():
    found = child.measure("sigmoid", (12, 9), 3, rounds=1)
    assert found["again_for_tensors"] == 0
    assert found["again_for_numbers"] <= 1
    assert found["again_for_batches"] <= 1


@pytest.mark.usefixtures("in_seconds")
def test_a_new_program_for_every_value_is_counted():
    """The negative control: a whole number that is looked up is a constant of its program."""
    compiled = torch.compile(lambda x, k: x * {1: 2.0, 2: 3.0, 3: 5.0}[k], fullgraph=True)
    before = child._programs()
    for k in (1, 2, 3):
        compiled(torch.zeros(2), k)
    assert child._programs() - before == 3
