import json

import pytest

from khot.compare.schema import SchemaError
from khot_bench.results import SCHEMA, load, results_path, save
from strategies import bench_examples as examples


@pytest.fixture
def path(tmp_path):
    path = results_path("example", tmp_path)
    save(examples.document(), path)
    return path


def test_round_trip(path):
    assert load(path) == examples.document()


def test_the_file_lies_where_it_should_and_is_alone(path, tmp_path):
    assert path == tmp_path / "benchmarks" / "results" / "example.json"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    before = path.read_text()
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(examples.document(), path)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


def change(path, edit):
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda v: v["measurements"][2].update(ratio="fast"), r"measurements\[2\]\.ratio must be a number"),
        (lambda v: v["measurements"][2].update(rounds=True), r"measurements\[2\]\.rounds must be an integer"),
        (
            lambda v: v["failures"][0].update(kind="odd"),
            r"failures\[0\]\.kind must be one of 'memory'",
        ),
        (lambda v: v["cases"][0].update(k=0), r"cases\[0\]: k must"),
        (lambda v: v.pop("machine"), "lacks: machine"),
        (lambda v: v.update(extra=1), "unknown fields: extra"),
        (lambda v: v.update(versions=[]), "versions must be an object"),
        (lambda v: v.update(sides={}), "sides must be a list"),
        (lambda v: v.update(commit=3), "commit must be an object"),
        (lambda v: v.update(schema=SCHEMA + 1), f"schema {SCHEMA + 1}, this khot reads {SCHEMA}"),
    ],
)
def test_what_does_not_fit_is_named(path, edit, message):
    change(path, edit)
    with pytest.raises(SchemaError, match=message):
        load(path)


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "schema None")])
def test_not_a_document(path, text, message):
    path.write_text(text)
    with pytest.raises(SchemaError, match=message):
        load(path)


def test_commit_may_be_unknown(path):
    change(path, lambda v: v.update(commit=None))
    assert load(path).commit is None
