"""`khot bench distributed`: its tables, and where they are kept."""

import pytest
from typer.testing import CliRunner

from khot_bench.commands import distributed as command
from khot_bench.commands.bench import app
from khot_bench.distributed.record import Distributed, Row, distributed_table, load_distributed

ROWS = (
    Row("sigmoid", "forward", 1, 0.05, 0.05, 0, 0, 0, 0.0),
    Row("sigmoid", "forward", 2, 0.04, 0.12, 13, 1500, 20_000_000, 1e-7),
)
FOUND = Distributed(10_000_000, 100_000, ROWS, 1e-4, 1e9, 0.0, "khot bench distributed", "a machine.")


def test_the_measured_table():
    grid = distributed_table(FOUND)
    assert grid.rows[1][:6] == ("sigmoid", "forward", "2", "40 ms", "120 ms", "0.33")
    assert grid.rows[1][6:] == ("13", "1.46 KiB", "19.1 MiB", "1e-07")


def test_the_model_says_that_it_is_one():
    grid = distributed_table(FOUND, "distributed-model")
    assert grid.caption.startswith("A model, not a measurement")
    # 0.0387 s of work for 5e6 scores, 1e9/64 of them; 13 messages of 6 · 0.1 ms.
    assert grid.rows[0][1:4] == ("7.7 ns", "121 ms", "7.8 ms")
    with pytest.raises(ValueError, match="unknown table 'distributed-x'"):
        distributed_table(FOUND, "distributed-x")


def test_the_command_keeps_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "run_distributed", lambda report, words, quick: FOUND)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    assert CliRunner().invoke(app, ["distributed", "--root", str(tmp_path)]).exit_code == 0
    assert load_distributed(tmp_path) == FOUND
    quick = CliRunner().invoke(app, ["distributed", "--quick", "--root", str(tmp_path)])
    assert "Not written: a quick run is kept only with --output." in quick.output
