"""The adversarial matrix notices what is broken, names what is not promised, and survives what crashes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from khot.relaxations import Relaxation, registry
from khot_bench.adversarial import matrix as matrix_file
from khot_bench.adversarial.child import outcome
from khot_bench.adversarial.contestant import Contestant, load_contestant
from khot_bench.adversarial.matrix import ALL_TRAPS, Cell, Matrix, Row, contestants, run_matrix, run_row
from khot_bench.adversarial.tables import MATRIX_TABLES, matrix_table
from khot_bench.commands.bench import app
from strategies import known_sides

sys.path.append(str(Path(__file__).parents[1] / "testing"))
from strategies.broken_operators import BROKEN
from strategies.quick_run import costly
from strategies.toy_operator import toy_topk

BY_NAME = {trap.name: trap for trap in ALL_TRAPS}
LONG = ("n = 1e6", "entmax long")
NOTICED = {
    "jacobian_is_its_diagonal": ("Jacobian", "wrong"),
    "k_times_softmax": ("≤ 1", "wrong"),
    "of_magnitudes": ("+1e4", "wrong"),
    "prefers_the_first": ("ties", "wrong"),
    "sharper_far_from_zero": ("+1e4", "wrong"),
    "nan_beside_infinities": ("−inf", "NaN"),
    "modifies_its_input": ("input kept", "wrong"),
    "threshold_in_half_precision": ("bfloat16", "wrong"),
    "result_in_float64": ("float16", "wrong"),
    "nan_for_large_scores": ("×1e4", "NaN"),
    "last_dimension_only": ("dim = 1", "pass"),  # which is the last one
}


def contestant(function, **promises):
    def along(x, k, dim):
        return function(x, k, dim=dim)

    return Contestant(
        known_sides.side("mine", function, along=along), Relaxation(name="mine", weights=function, **promises)
    )


@pytest.mark.parametrize("name", NOTICED)
def test_a_broken_operator_is_noticed(name):
    trap, expected = NOTICED[name]
    assert outcome(contestant(BROKEN[name][0]), BY_NAME[trap])["outcome"] == expected


@pytest.mark.parametrize("trap", [trap for trap in ALL_TRAPS if trap.name not in LONG], ids=lambda t: t.name)
def test_a_right_operator_passes(trap):
    assert outcome(contestant(toy_topk), trap) == {"outcome": "pass", "detail": ""}


QUICK = {"sigmoid", "sparse", "soft_rank", "softsort"}  # the contract has the others


@pytest.mark.parametrize(
    "name", ["", *(name if name in QUICK else costly(name) for name in registry.names())]
)
def test_no_registered_operator_fails(name):
    source = f"khot.compare.cost.side:relaxation:{name}" if name else "khot_bench.sides.operators:soft_rank"
    ours = load_contestant(source)
    found = {trap.name: outcome(ours, trap) for trap in ALL_TRAPS if trap.name not in LONG}
    assert {name: cell for name, cell in found.items() if cell["outcome"] not in ("pass", "n/a")} == {}


def test_what_is_not_promised_is_named():
    unbounded = contestant(BROKEN["k_times_softmax"][0], bounded=False)
    found = outcome(unbounded, BY_NAME["≤ 1"])
    assert found["outcome"] == "n/a"
    assert found["detail"].startswith("bounded; the largest weight is 2.")  # 3 e⁴/(e⁴ + 7)
    assert (
        outcome(contestant(toy_topk, shift_invariant=False), BY_NAME["+1e4"])["detail"] == "shift_invariant"
    )


def test_rows_longer_than_an_operator_of_its_kind_takes_are_asked_of_nobody():
    for trap in LONG:
        assert outcome(contestant(toy_topk, max_n=1000), BY_NAME[trap])["detail"] == "max_n is 1000"


def test_an_exception_is_an_error_with_its_reason():
    def refusing(x, k, **options):
        raise RuntimeError("not this one\nmore")

    assert outcome(contestant(refusing), BY_NAME["ties"]) == {
        "outcome": "error",
        "detail": "RuntimeError: not this one",
    }


def test_seeding_a_random_operator_leaves_the_default_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    random = contestant(lambda x, k: torch.rand_like(x))
    assert torch.equal(random.weights(torch.zeros(2, 3), 1), random.weights(torch.zeros(2, 3), 1))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.slow
@pytest.mark.full
def test_a_crash_is_one_cell(monkeypatch):
    few = [trap for trap in ALL_TRAPS if trap.name not in LONG]
    monkeypatch.setattr(matrix_file, "ALL_TRAPS", few)
    cells = run_row("strategies.known_sides:aborting")[: len(few)]
    found = {trap.name: cell for trap, cell in zip(few, cells, strict=True)}
    assert found["(5, 1, n)"] == Cell("error", "killed by signal 6")
    assert found["input kept"].outcome == "pass"
    assert found["ties"].outcome == "wrong"


def test_an_absent_peer_is_a_row():
    found = run_matrix(["strategies.bench_examples:absent"], lambda message, share: None)
    (row,) = found.rows
    assert row.name == "absent.topk"
    assert {cell.outcome for cell in row.cells} == {"absent"}
    assert "pip install --some-option absent==9.9" in row.cells[0].detail


def test_every_operator_and_peer_takes_part():
    sources = contestants()
    assert all(f"khot.compare.cost.side:relaxation:{name}" in sources for name in registry.names())
    assert "khot_bench.peers.bisection:load" in sources
    assert "khot_bench.peers.bisection:load" not in contestants(peers=False)


def example():
    names = tuple(trap.name for trap in ALL_TRAPS)
    cells = (Cell("pass"), Cell("n/a", "why|not"), *[Cell("NaN", "here")] * (len(names) - 2))
    return Matrix(names, (Row("khot.a_topk", "khot", cells), Row("b", "peer", cells)), "khot bench", "Here.")


def test_tables():
    outcomes = matrix_table(example())
    assert outcomes.rows[0][:4] == ("**khot.a_topk**", f"1 of {len(outcomes.header) - 3}", "✓", "n/a")
    assert outcomes.rows[1][0] == "b"
    assert len(matrix_table(example(), "adversarial-traps").rows) == len(ALL_TRAPS)
    lost = str(len(ALL_TRAPS) - 2)
    assert matrix_table(example(), "adversarial-summary").rows == (
        ("**khot, 1 operators**", f"1 of {len(ALL_TRAPS) - 1}", lost, "", ""),
        ("b", f"1 of {len(ALL_TRAPS) - 1}", lost, "", ""),
    )
    assert matrix_table(example(), "adversarial-details").rows[0] == ("khot.a_topk", "+1e4", "n/a", "why|not")
    with pytest.raises(ValueError, match=", ".join(MATRIX_TABLES)):
        matrix_table(example(), "adversarial-other")
    old = Matrix(("gone",), (), "", "")
    with pytest.raises(ValueError, match="run `khot bench adversarial`"):
        matrix_table(old)


def call(*arguments):
    result = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, [str(a) for a in arguments])
    return SimpleNamespace(code=result.exit_code, text=" ".join(result.output.replace("│", " ").split()))


def test_an_unknown_method_names_those_there_are():
    result = call("adversarial", "--methods", "sigmoidd")
    assert result.code == 2
    assert f"unknown method 'sigmoidd'; choose from {', '.join(registry.names())}" in result.text


def test_a_partial_matrix_is_written_only_where_told(tmp_path, monkeypatch):
    monkeypatch.setattr("khot_bench.commands.adversarial.run_matrix", lambda *arguments: example())
    result = call("adversarial", "--no-peers", "--root", tmp_path)
    assert result.code == 0
    assert "Not written" in result.text
    assert not list(tmp_path.iterdir())
    path = tmp_path / "mine.json"
    assert f"Written to {path}" in call("adversarial", "--no-peers", "--output", path).text
    assert path.exists()


def test_the_list_names_it():
    assert "adversarial: every operator and peer" in call("list").text
