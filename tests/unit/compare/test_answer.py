"""The answer names the right winners, and says nothing where nothing was measured."""

import dataclasses

from khot.compare.comparison import Cell, Comparison, Options, Record
from khot.compare.report.answer import answer


def record(method, on_topk, forward, *, nccs=None, usable=0.5, setting="matched", **fields):
    return Record(
        method, 100, 5, setting, temperature=0.5, on_topk=on_topk, forward=forward, backward=forward,
        nccs=nccs, usable=usable, **fields,
    )  # fmt: skip


def comparison(*records):
    options = Options(tuple(r.method for r in records), n=(100,), k=(5,))
    return Comparison("today", "A machine.", options, (Cell(100, 5, 4),), records, (0.2,), (1e-5,), 0.0)


def winners(*records):
    return {winner.title: winner.method for winner in answer(comparison(*records)).winners}


def test_the_fastest_of_the_good_ones_is_to_start_with():
    found = winners(record("quick", 0.5, 1e-6), record("good", 0.80, 2e-5), record("best", 0.81, 9e-4))
    assert found["start with"] == "good"
    assert found["fastest"] == "quick"
    assert found["closest to the exact selection"] == "best"


def test_weights_above_one_are_not_to_start_with():
    found = winners(record("soft_rank", 0.95, 1e-6), record("sigmoid", 0.6, 1e-5))
    assert found["start with"] == "sigmoid"
    assert found["closest to the exact selection"] == "soft_rank"


def test_every_measure_has_its_winner():
    rows = record("rows", 0.7, 1e-3, nccs=0.9, usable=0.2)
    wide = record("wide", 0.7, 1e-3, nccs=0.3, usable=0.9)
    small = record("small", 0.6, 1e-3, setting="fixed", backward_bytes=1024)
    large = record("large", 0.6, 1e-3, setting="fixed", backward_bytes=2**20)
    found = winners(rows, wide, small, large)
    assert found["separates the k vectors best"] == "rows"
    assert found["gradient for most scores"] == "wide"
    assert found["least memory"] == "small"


def test_a_sample_is_not_judged_and_what_is_missing_is_left_out():
    missing = Record("network", 100, 5, "matched", missing="n is above 10")
    found = answer(comparison(record("gumbel", 1.0, 1e-9), record("sigmoid", 0.5, 1e-5), missing))
    assert {winner.method for winner in found.winners} == {"sigmoid"}
    assert "separates the k vectors best" not in {winner.title for winner in found.winners}
    assert found.headline == "For n = 100, k = 5 on this machine: start with sigmoid."


def test_nothing_measured():
    found = answer(comparison(Record("network", 100, 5, "matched", missing="too slow")))
    assert found.winners == ()
    assert "nothing could be measured" in found.headline


def test_numbers_stand_in_the_sentences():
    found = answer(comparison(dataclasses.replace(record("sigmoid", 0.75, 2e-5), backward=1e-5)))
    sentences = {winner.title: winner.sentence for winner in found.winners}
    assert sentences["fastest"] == "30 µs forward and backward"
    assert "2.00 times torch.softmax" in sentences["start with"]
