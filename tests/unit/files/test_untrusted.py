"""Files that are damaged, too large, too deep or made to harm: a clear error, and little memory."""

import gzip
import json
import struct
import zipfile

import pytest

from khot.files import untrusted
from khot.files.untrusted import MAX_JSON_DEPTH, check_archive, parse_json, read_json, read_object, unpacked


def nested(depth):
    return "[" * depth + "]" * depth


def test_json_that_is_right():
    for value in (None, True, 3, -1.5, "ü", [], {"a": [1, {"b": None}]}, 2**64 - 1, 1e308):
        assert parse_json(json.dumps(value)) == value
    assert parse_json(nested(MAX_JSON_DEPTH)) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ('{"a": 1', "Expecting ',' delimiter"),
        ("[1, 2]]", "Extra data"),
        (nested(MAX_JSON_DEPTH + 1), "deeper than 64 levels"),
        (nested(100_000), "deeper than 64 levels"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "deeper than 64 levels"),
        ("[" * 1_000_000, "deeper than 64 levels"),
        ("NaN", "it has NaN, which JSON lacks"),
        ("[-Infinity]", "it has -Infinity, which JSON lacks"),
        ("1e999", "a number above the largest"),
        (str(2**64), "a whole number of more than 64 bits"),
        ("9" * 5000, "a whole number of more than 64 bits"),
    ],
    ids=range(13),
)
def test_json_that_is_not(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_a_curve_may_have_a_nan_where_this_is_allowed():
    assert parse_json("[Infinity, 1]", finite=False) == [float("inf"), 1]


def test_files_are_named_and_never_read_beyond_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    assert read_object(path, "asking") == {"a": 1}
    for content, message in (
        (b"\xff\xfe", r"asking: .*file\.json is not JSON \('utf-8' codec can't decode"),
        (b"[1, 2", r"asking: .*file\.json is not JSON \(Expecting"),
        (b"[1]", r"asking: .*file\.json must hold an object, got list"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_object(path, "asking")
    monkeypatch.setattr(untrusted, "MAX_JSON_BYTES", 10)
    path.write_text('"' + "a" * 9 + '"')
    with pytest.raises(ValueError, match=r"is not JSON \(longer than 10 bytes\)"):
        read_json(path, "asking")
    with pytest.raises(ValueError, match=r"longer than 10 bytes"):
        read_json("/dev/zero", "asking")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "absent", "asking")


def test_archives_that_unpack_to_too_much(tmp_path):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small", b"abc")
        archive.writestr("also", bytes(100_000))
    assert check_archive(path) == {"small": 3, "also": 100_000}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(50_000_000))
    with pytest.raises(ValueError, match=r"bytes that unpack to 50000000, more than 20 times as many"):
        check_archive(path)
    whole = path.read_bytes()
    for damaged in (whole[:-10], whole[:100], b"", b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a whole archive"):
            check_archive(path)


def test_gzip_files_that_unpack_to_too_much(tmp_path, monkeypatch):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(b"abc" * 1000))
    assert unpacked(path) == b"abc" * 1000
    monkeypatch.setattr(untrusted, "MAX_UNPACKED_BYTES", 2999)
    with pytest.raises(ValueError, match="it unpacks to more than 2999 bytes"):
        unpacked(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="truncated or no gzip file"):
        unpacked(path)
    path.write_bytes(struct.pack(">I", 1))
    with pytest.raises(ValueError, match="truncated or no gzip file"):
        unpacked(path)
