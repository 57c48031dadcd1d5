"""`khot sae`: train on a module or a model of transformers, resume, convert; wrong arguments."""

import sys

import pytest
import torch
from typer.testing import CliRunner

from khot.apps.sae import SparseAutoencoder
from khot.cli.sae import app

SOURCE = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(20, 50, 4)
"""
SMALL = ["--num-latents", 16, "--k", 2, "--steps", 30, "--batch-size", 50]


def call(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "250"})
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("own_network", None)


def test_any_module_is_trained_and_a_second_call_changes_nothing(folder):
    arguments = ["train", "--source", "own_network:small", "--hook-point", "1", "--output", "run", *SMALL]
    code, output = call(*arguments)
    assert code == 0, output
    assert "explained variance" in output
    assert {path.name for path in (folder / "run").iterdir()} == {
        "activations",
        "cfg.json",
        "index.html",
        "sae_weights.safetensors",
        "settings.json",
        "state.safetensors",
    }
    first = SparseAutoencoder.load("run")
    assert first.options.activation == "jumprelu"  # what SAELens has for batch_topk
    assert call(*arguments)[0] == 0
    assert torch.equal(SparseAutoencoder.load("run").W_dec, first.W_dec)
    code, output = call(
        "train",
        "--activations",
        "run/activations",
        "--output",
        "other",
        "--activation",
        "topk",
        *SMALL,
        "--format",
        "sparsify",
    )
    assert code == 0, output
    code, output = call("convert", "other", "converted")
    assert code == 0, output
    converted, other = SparseAutoencoder.load("converted"), SparseAutoencoder.load("other")
    x = torch.rand(20, 8)
    torch.testing.assert_close(converted(x).sae_out, other(x).sae_out)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_of_transformers_is_trained_on_a_text_file(folder):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = [f"w{i}" for i in range(40)]
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *words])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]").save_pretrained("model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=41, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained("model")
    generator = torch.Generator().manual_seed(1)
    text = " ".join(words[i] for i in torch.randint(0, 40, (1500,), generator=generator))
    (folder / "text.txt").write_text(text)
    code, output = call(
        "train",
        "--model",
        "model",
        "--text",
        "text.txt",
        "--hook-point",
        "model.layers.0",
        "--length",
        16,
        "--output",
        "run",
        *SMALL,
    )
    assert code == 0, output
    page = (folder / "run" / "index.html").read_text()
    assert "<mark>w" in page
    short = folder / "short.txt"
    short.write_text("w1 w2")
    code, output = call(
        "train", "--model", "model", "--text", short, "--hook-point", "model.layers.0", "--output", "new"
    )
    assert code == 1
    assert "the text has 2 tokens, fewer than length = 128" in output


@pytest.mark.parametrize(
    ("arguments", "wanted", "message"),
    [
        ([], 2, "give one of --activations, --model with --text, and --source"),
        (["--model", "m"], 2, "give one of"),
        (["--source", "own_network:small"], 2, "--hook-point must say"),
        (
            ["--source", "own_network", "--hook-point", "1"],
            2,
            "--source must read MODULE:FUNCTION, got 'own_network'",
        ),
        (["--source", "own_network:none", "--hook-point", "1"], 1, "own_network has no 'none'"),
        (
            ["--source", "own_network:small", "--hook-point", "9"],
            1,
            "hook_point must be the name of a module, got '9'",
        ),
        (
            ["--source", "own_network:small", "--hook-point", "1", "--k", "0"],
            2,
            "k must be an integer ≥ 1, got 0",
        ),
        (
            ["--source", "own_network:small", "--hook-point", "1", "--k", "9999"],
            2,
            "k must be at most num_latents",
        ),
        (
            ["--activations", "nowhere", "--prefixes", "4,x"],
            2,
            "--prefixes must be numbers with commas between, got '4,x'",
        ),
        (["--activations", "nowhere", "--prefixes", "8,4"], 2, "prefixes must be rising integers"),
        (["--activations", "nowhere"], 1, "there is no nowhere/store.json"),
        (["--activations", "nowhere", "--format", "npz"], 2, "--format must be saelens or sparsify, got"),
        (["--activations", "nowhere", "--format", "sparsify"], 2, "sparsify has no batch_topk"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(folder, arguments, wanted, message):
    code, output = call("train", *arguments, "--output", "new")
    assert code == wanted
    assert output.count("\n") == 1
    assert message in output
    assert not (folder / "new").exists()


def test_convert_refuses_what_it_cannot(folder):
    assert call("convert", "nowhere", "out") == (1, output := call("convert", "nowhere", "out")[1])
    assert "there is none of" in output
    SparseAutoencoder(6, 12, 2, "jumprelu", threshold=0.1).save("jump")
    code, output = call("convert", "jump", "out", "--format", "sparsify")
    assert code == 1
    assert "sparsify has no jumprelu" in output
    assert call("convert", "jump", "jump")[0] == 2
    assert call("convert", "jump", "out", "--format", "npz")[0] == 2
    assert not (folder / "out").exists()


def test_an_output_that_cannot_be_written_fails_before_anything_is_collected(folder):
    (folder / "file").write_text("kept")
    (folder / "own_network.py").write_text("def small():\n    raise AssertionError('asked for it')\n")
    for output in ("file", "file/below", "/proc/nope"):
        code, text = call(
            "train", "--source", "own_network:small", "--hook-point", "1", "--output", output, *SMALL
        )
        assert code == 2
        assert f"output must be a folder that can be written to, got '{output}'" in text
    assert (folder / "file").read_text() == "kept"
