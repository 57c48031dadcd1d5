import dataclasses

import pytest

from khot.compare.report.grid import bytes_text, markdown, ratio_text, seconds_text
from khot_bench import markers
from khot_bench.results import results_path, save
from khot_bench.tables import table, table_names
from strategies import bench_examples as examples

DOCUMENT = examples.document()


def cells(name):
    grid = table(DOCUMENT, name)
    return {row[0]: row[1:] for row in grid.rows}


def test_ratios_failures_and_absences_are_shown():
    assert table(DOCUMENT).header == ("side", "computes", "1×1e6 k=1000")
    assert cells("example") == {
        "torch.softmax": ("baseline", "1 ms (2 ms)"),
        "**khot.sigmoid_topk**": ("same map", "1.23 (1.50)"),
        "slow": ("other map", "12346 (out of memory)"),
        "bad": ("ranks", "wrong"),
        "absent.topk": ("", "not installed"),
    }
    assert cells("example") == cells("example-threads-1")


def test_the_short_table_has_what_was_measured_throughout():
    grid = table(DOCUMENT, "example-short")
    assert grid.header == ("side", "1×1e6 k=1000")
    assert [row[0] for row in grid.rows] == ["torch.softmax", "**khot.sigmoid_topk**"]
    assert "has 3 more, which cannot do all of these" in grid.notes[0]


def test_another_thread_count():
    assert cells("example-threads-2")["**khot.sigmoid_topk**"] == ("same map", "0.65 (–)")
    assert cells("example-threads-2")["bad"] == ("ranks", "–")


def test_overhead_is_absolute():
    assert cells("example-overhead")["torch.softmax"] == ("2 µs", "–")
    assert cells("example-overhead")["**khot.sigmoid_topk**"] == ("8 µs (+6.0 µs)", "–")
    assert cells("example-overhead")["slow"] == ("> 5 s", "–")


def test_memory_is_a_multiple_of_the_input():
    assert cells("example-memory")["**khot.sigmoid_topk**"] == ("2.0 (–)",)
    assert cells("example-memory")["slow"] == ("– (out of memory)",)


def test_sides_say_how_to_get_the_absent():
    assert cells("example-sides")["absent.topk"][-1] == "not installed: pip install absent==9.9"
    assert cells("example-sides")["**khot.sigmoid_topk**"][2:5] == ("2e-07", "1e-07", "–")
    assert cells("example-sides")["slow"][2:5] == ("–", "53%", "–")
    assert cells("example-sides")["bad"][-1] == examples.WRONG


def test_under_the_table_stand_reasons_and_origin():
    grid = table(DOCUMENT)
    assert "bad, wrong: value error 1e+00 exceeds 1e-05." in grid.notes
    assert grid.origin == (
        "A CPU, 2 cores, 16 GiB, Linux 6; 1 thread; python 3.11.0, torch 2.13.0, "
        "commit 012345678 with changes, avx2 kernels; 2025-01-02."
    )
    assert "without compiled kernels" in table(dataclasses.replace(DOCUMENT, kernels=None)).origin
    assert table(dataclasses.replace(DOCUMENT, quick=True)).origin.endswith("a quick run, not to be quoted.")
    busy = table(dataclasses.replace(DOCUMENT, others=0.82)).origin
    assert "other processes used 0.8 cores meanwhile" in busy


def test_disturbed_measurements_are_marked():
    doubtful = examples.measurement("1×1e6", "slow", "forward", 50.0, disturbed=0.9)
    grid = table(dataclasses.replace(DOCUMENT, measurements=(*DOCUMENT.measurements, doubtful)))
    assert ("slow", "other map", "~50.0 (out of memory)") in grid.rows
    assert any(note.startswith("~:") for note in grid.notes)
    assert not any(note.startswith("~:") for note in table(DOCUMENT).notes)


def test_markdown_is_a_table():
    lines = markdown(table(DOCUMENT, "example-sides")).splitlines()
    assert lines[2].startswith("| side | package |")
    assert lines[3] == "| --- | --- | --- | --- | --- | --- | --- |"
    assert "a\\|b" in lines[6]


def test_unknown_table_names_those_there_are():
    with pytest.raises(ValueError, match="example-overhead, example-memory, example-sides"):
        table(DOCUMENT, "example-x")


def test_numbers_read_well():
    assert [ratio_text(r) for r in (0.651, 9.876, 98.76, 99.97, 12345.6)] == [
        "0.65",
        "9.88",
        "98.8",
        "100",
        "12346",
    ]
    assert [seconds_text(s) for s in (2.5, 0.0123, 4.56e-6)] == ["2.5 s", "12.3 ms", "4.56 µs"]
    assert [bytes_text(b) for b in (12, 2048, 3 * 2**20, 8 * 2**30)] == ["12 B", "2 KiB", "3 MiB", "8 GiB"]
    assert [bytes_text(b * 2**10) for b in (999, 1000, 1020)] == ["999 KiB", "0.977 MiB", "0.996 MiB"]


@pytest.fixture
def checkout(tmp_path):
    save(DOCUMENT, results_path("example", tmp_path))
    page = tmp_path / "docs" / "deep" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text(
        "before\n<!-- bench:example -->\n<!-- /bench:example -->\nbetween\n"
        "<!-- bench:example-memory -->\nold\n<!-- /bench:example-memory -->\nafter\n"
    )
    (tmp_path / "README.md").write_text("no tables here\n")
    return tmp_path


def test_tables_are_written_between_their_markers(checkout):
    page = checkout / "docs" / "deep" / "page.md"
    assert markers.stale(checkout) == (page,)
    assert markers.refresh(checkout) == (page,)
    text = page.read_text()
    assert text.startswith("before\n<!-- bench:example -->\n**An example, 1 thread**\n")
    assert "\n<!-- /bench:example -->\nbetween\n" in text
    assert "old" not in text
    assert text.endswith("<!-- /bench:example-memory -->\nafter\n")
    assert markers.stale(checkout) == ()
    assert markers.refresh(checkout) == ()


def test_a_changed_result_makes_a_page_stale(checkout):
    markers.refresh(checkout)
    save(
        dataclasses.replace(DOCUMENT, created="2026-01-01T00:00:00+00:00"), results_path("example", checkout)
    )
    assert markers.stale(checkout) == (checkout / "docs" / "deep" / "page.md",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<!-- bench:other -->\n<!-- /bench:other -->\n",
            "needs benchmarks/results/other.json, which is missing",
        ),
        ("<!-- bench:example-x -->\n<!-- /bench:example-x -->\n", "unknown table 'example-x'"),
        ("<!-- bench:example -->\n", "is not closed"),
        ("<!-- bench:example -->\n<!-- bench:example -->\n", "is not closed"),
        ("<!-- /bench:example -->\n", "closes nothing"),
    ],
)
def test_a_marker_that_cannot_be_filled_names_the_file(checkout, text, message):
    (checkout / "README.md").write_text(text)
    with pytest.raises(markers.MarkerError, match=message) as caught:
        markers.stale(checkout)
    assert str(caught.value).startswith("README.md: ")


def test_every_named_table_can_be_made():
    for name in table_names(DOCUMENT):
        assert markdown(table(DOCUMENT, name))
