"""The experiment on beams: words become numbers, every way trains, and is shown."""

import itertools
import sys
from types import SimpleNamespace

import pytest
import torch

from khot.compare.report.grid import markdown
from khot_bench.reproduce import cmudict_words, spelling_models
from khot_bench.reproduce.experiments import beam
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.spelling_models import BEAMS, WAYS

SOUNDS = {"a": "AH0", "b": "B", "d": "D", "k": "K", "o": "OW1", "s": "S"}


@pytest.fixture
def little_dictionary(monkeypatch):
    """All words of three and four of six letters, each of which has one sound."""
    made = [
        ("".join(word), [SOUNDS[letter] for letter in word])
        for length in (3, 4)
        for word in itertools.product(SOUNDS, repeat=length)
    ]
    others = [("a'b", ["AH0", "B"]), ("bad", ["S"]), ("abcdefghijklmn", ["B"])]
    monkeypatch.setitem(sys.modules, "cmudict", SimpleNamespace(entries=lambda: [*made, *others]))
    monkeypatch.setattr(cmudict_words, "SIZES", {"train": 1200, "validation": 100, "test": 100})
    monkeypatch.setattr(spelling_models, "BATCH", 32)
    cmudict_words.words.cache_clear()
    spelling_models.warm_start.cache_clear()
    yield made
    cmudict_words.words.cache_clear()
    spelling_models.warm_start.cache_clear()


def test_words_as_numbers(little_dictionary):
    splits = cmudict_words.words()
    assert {name: len(part.letters) for name, part in splits.items()} == cmudict_words.SIZES
    known = dict(little_dictionary)
    seen = set()
    for part in splits.values():
        for letters, phonemes in zip(part.letters.tolist(), part.phonemes.tolist(), strict=True):
            word = "".join(cmudict_words.LETTERS[i - 1] for i in letters if i)
            assert cmudict_words.spelled(phonemes) == [sound.rstrip("01") for sound in known[word]]
            assert word not in seen
            seen.add(word)


def test_the_distance_of_two_spellings():
    assert spelling_models._distance(list("kitten"), list("sitting")) == 3
    assert spelling_models._distance([], list("abc")) == 3
    assert spelling_models._distance(list("abc"), list("abc")) == 0


@pytest.mark.slow
@pytest.mark.full
def test_every_way_trains_and_is_shown(little_dictionary, tmp_path):
    ledger = Ledger("beam")
    for settings in beam._runs(quick=True):
        small = {**settings, "steps": 60, "more": 3}
        ledger.add(small, beam._run(small), tmp_path / "runs.json")
    assert len(ledger.runs) == len(WAYS)
    for way in WAYS:
        (error,) = ledger.select("phonemes 3", way=way)
        assert error < 0.6  # of six sounds
    (table,) = beam._tables(ledger)
    assert all(way in markdown(table) for way in WAYS)
    assert len(table.header) == 1 + 2 * len(BEAMS)
    beam._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
    torch.manual_seed(7)
    spelling_models.warm_start.cache_clear()
    again = beam._run({**beam._runs(quick=True)[-1], "steps": 60, "more": 3})
    assert again == ledger.runs[-1][1]


def test_seed_by_seed():
    runs = beam._runs(quick=False)
    assert [run["seed"] for run in runs] == sorted(run["seed"] for run in runs)
    assert len(runs) == 3 * len(WAYS)
