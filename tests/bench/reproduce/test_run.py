"""An experiment that was stopped goes on where it was, and its file is never half written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from khot.compare.report.grid import Grid
from khot.vision.data import data_folder
from khot_bench.commands.reproduce import app
from khot_bench.reproduce.experiments import load_reproduction, reproduction_names
from khot_bench.reproduce.ledger import Ledger, load_ledger, mean_and_error
from khot_bench.reproduce.run import Reproduction, finish_runs, missing_packages


def experiment(run, needs=()):
    return Reproduction(
        name="fake",
        title="nothing",
        runs=lambda quick: [{"seed": seed} for seed in range(2 if quick else 4)],
        run=run,
        tables=lambda ledger: (Grid("caption", ("a",), (), (), ledger.origin),),
        plot=lambda ledger, path: None,
        needs=needs,
    )


def silent(message, share):
    assert 0 <= share <= 1


def test_a_finished_run_is_not_done_again(tmp_path):
    path, done = tmp_path / "deep" / "fake.json", []

    def run(settings):
        if settings["seed"] == 2 and 2 not in done:
            done.append(2)
            raise KeyboardInterrupt
        done.append(settings["seed"])
        return {"value": 10.0 * settings["seed"]}

    with pytest.raises(KeyboardInterrupt):
        finish_runs(experiment(run), path, quick=False, report=silent)
    assert [r["settings"]["seed"] for r in json.loads(path.read_text())["runs"]] == [0, 1]
    ledger = finish_runs(experiment(run), path, quick=False, report=silent)
    assert done == [0, 1, 2, 2, 3]
    assert ledger.select("value") == [0, 10, 20, 30]
    assert ledger.select("value", seed=3) == [30]
    assert load_ledger("fake", path).runs == ledger.runs
    assert [file.name for file in path.parent.iterdir()] == ["fake.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path, ledger = tmp_path / "fake.json", Ledger("fake")
    ledger.add({"seed": 0}, {"value": 1.0}, path)
    before = path.read_text()
    monkeypatch.setattr(Path, "replace", lambda *paths: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        ledger.add({"seed": 1}, {"value": 2.0}, path)
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["fake.json"]


def test_a_file_of_something_else_is_not_overwritten(tmp_path):
    path = tmp_path / "fake.json"
    path.write_text('{"other": 1}')
    with pytest.raises(ValueError, match="is not a ledger of runs"):
        finish_runs(experiment(lambda settings: {}), path, quick=True, report=silent)
    assert path.read_text() == '{"other": 1}'


def test_missing_packages_are_named():
    assert missing_packages(experiment(lambda settings: {}, needs=("numpy", "no-such-package"))) == (
        "no-such-package",
    )


def test_mean_and_standard_error():
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)
    assert mean_and_error([5.0]) == (5.0, 0.0)


@pytest.mark.parametrize("name", reproduction_names())
def test_every_reproduction_is_named_as_its_module_and_has_runs(name):
    reproduction = load_reproduction(name)
    assert reproduction.name == name
    quick, full = reproduction.runs(True), reproduction.runs(False)
    assert 0 < len(quick) <= len(full)
    assert len({json.dumps(dict(run)) for run in full}) == len(full)


def test_the_command_lists_and_names_what_there_is():
    listed = CliRunner().invoke(app, ["--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in reproduction_names())
    wrong = CliRunner().invoke(app, ["nothing2020"])
    assert wrong.exit_code == 2
    assert "unknown reproduction 'nothing2020'; choose from" in wrong.output


def test_the_command_says_where_the_data_are(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", "elsewhere")
    seen = []

    def run(settings):
        seen.append(data_folder())
        return {"value": 1.0}

    monkeypatch.setattr("khot_bench.commands.reproduce.load_reproduction", lambda name: experiment(run))
    options = ["--quick", "--threads", "1", "--output", str(tmp_path), "--data-dir", str(tmp_path / "data")]
    done = CliRunner().invoke(app, ["fake", *options])
    assert done.exit_code == 0, done.output
    assert seen == [tmp_path / "data"] * 2


def test_only_what_was_done_for_all_is_compared():
    runs = [
        ({"part": "a", "method": method, "seed": seed}, {"x": 1.0})
        for method, seeds in (("one", (0, 1, 2)), ("other", (0, 1)))
        for seed in seeds
    ]
    ledger = Ledger("name", [*runs, ({"part": "b", "method": "third", "seed": 0}, {"x": 2.0})], "here")
    fair = ledger.compared("method", part="a")
    assert fair.runs == [run for run in runs if run[0]["seed"] < 2]
    assert fair.origin == "here"
