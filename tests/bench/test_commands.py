import dataclasses
import re
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from khot_bench.commands import bench, reproduce
from khot_bench.reproduce.experiments import load_reproduction
from khot_bench.results import load, results_path, save
from khot_bench.suites import suite_names
from strategies import bench_examples as examples

APPS = {"bench": bench.app, "reproduce": reproduce.app}
WIDE = {"COLUMNS": "250", "TERM": "dumb", "NO_COLOR": "1"}


def call(command, *arguments):
    result = CliRunner(env=WIDE).invoke(APPS[command], [str(argument) for argument in arguments])
    text = re.sub(r"[│\s]+", " ", result.output)
    return SimpleNamespace(code=result.exit_code, text=text)


def test_list_names_suites_cases_and_peers():
    result = call("bench", "list")
    assert result.code == 0
    assert "sigmoid" in result.text
    assert "1×1e6 k=1000" in result.text
    assert "bisection in torch" in result.text


def test_unknown_suite_names_the_allowed_values():
    result = call("bench", "sigmoidd")
    assert result.code == 2
    others = ["adversarial", "compiled", "distributed", "export", "gpu", "list", "all", "tables"]
    known = ", ".join([*suite_names(), *others])
    assert f"unknown suite 'sigmoidd'; choose from {known}" in result.text


def test_all_leaves_out_what_needs_another_processor(monkeypatch, tmp_path):
    other = dataclasses.replace(examples.suite("right"), instruction_set="avx9")
    monkeypatch.setattr(bench, "suite_names", lambda: ("example",))
    monkeypatch.setattr(bench, "load_suite", lambda name: other)
    result = call("bench", "all", "--quick", "--root", tmp_path)
    assert result.code == 0
    assert "khot bench example: left out, it needs avx9 kernels; this machine uses" in result.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so():
    result = call("bench", "gpu")
    assert result.code == 1
    assert "nobody has run khot's GPU kernels yet" in result.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "1"),
        (["--threads", "two"], "valid int"),
        (["--frob"], "No such option"),
    ],
)
def test_bad_option_is_named(arguments, message):
    result = call("bench", "sigmoid", *arguments)
    assert result.code == 2
    assert arguments[0] in result.text
    assert message in result.text


def test_only_without_a_match_names_the_sides():
    result = call("bench", "sigmoid", "--quick", "--only", "nothing")
    assert result.code == 1
    assert "khot.sigmoid_topk, torch.topk, bisection in torch" in result.text


def test_a_quick_run_prints_tables_and_writes_only_where_told(tmp_path):
    output = tmp_path / "new" / "quick.json"
    result = call(
        "bench", "sigmoid", "--quick", "--no-peers", "--threads", 1, "--root", tmp_path, "--output", output
    )
    assert result.code == 0
    assert "khot.sigmoid_topk" in result.text
    assert f"Written to {output}" in result.text
    document = load(output)
    assert document.quick
    assert document.threads == (1,)
    assert document.command.startswith("khot")


@pytest.mark.full
def test_a_partial_run_does_not_replace_the_results(tmp_path):
    result = call("bench", "all", "--quick", "--no-peers", "--root", tmp_path)
    assert result.code == 0
    assert "Not written" in result.text
    assert not list(tmp_path.iterdir())


def test_a_full_run_is_written_to_its_place(tmp_path, monkeypatch):
    seen = []

    def run(suite, settings, report):
        seen.append((suite.name, settings))
        return dataclasses.replace(examples.document(), suite=suite.name)

    monkeypatch.setattr("khot_bench.runner.run", run)
    result = call("bench", "sigmoid", "--threads", 2, "--threads", 1, "--threads", 2, "--root", tmp_path)
    assert result.code == 0
    assert load(results_path("sigmoid", tmp_path)).suite == "sigmoid"
    ((name, settings),) = seen
    assert name == "sigmoid"
    assert settings.threads == (2, 1)
    assert settings.peers
    assert not settings.quick


@pytest.fixture
def checkout(tmp_path):
    save(examples.document(), results_path("example", tmp_path))
    (tmp_path / "README.md").write_text("<!-- bench:example -->\nold\n<!-- /bench:example -->\n")
    return tmp_path


def test_check_fails_on_a_stale_table_and_says_what_to_do(checkout):
    before = (checkout / "README.md").read_text()
    result = call("bench", "tables", "--check", "--root", checkout)
    assert result.code == 1
    assert "README.md: stale" in result.text
    assert "run `khot bench tables`" in result.text
    assert (checkout / "README.md").read_text() == before


def test_tables_writes_and_then_check_passes(checkout):
    result = call("bench", "tables", "--root", checkout)
    assert result.code == 0
    assert "README.md: written" in result.text
    assert call("bench", "tables", "--check", "--root", checkout).code == 0


def test_check_fails_on_missing_results(checkout):
    results_path("example", checkout).unlink()
    result = call("bench", "tables", "--check", "--root", checkout)
    assert result.code == 1
    assert "README.md" in result.text
    assert "benchmarks/results/example.json, which is missing; run `khot bench example`" in result.text


def test_a_reproduction_without_its_data_is_named_and_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", "replaced by the option")
    done = []
    ran = dataclasses.replace(
        load_reproduction("petersen2022"),
        runs=lambda quick: done.append(quick) or [],
        tables=lambda ledger: (),
        plot=lambda ledger, picture: None,
    )
    monkeypatch.setattr(
        reproduce, "load_reproduction", lambda n: ran if n == ran.name else load_reproduction(n)
    )
    monkeypatch.setattr(reproduce, "_report_reproductions", lambda *arguments: None)
    quick = ["--quick", "--data-dir", tmp_path / "none", "--output", tmp_path / "runs"]
    result = call("reproduce", "haurum2023", "petersen2022", *quick)
    assert result.code == 1
    assert f"khot: haurum2023: data.load: neither {tmp_path}/none/mnist/train-images" in result.text
    assert done
    assert all(done)
