"""Folders that khot writes are opened by SAELens, sparsify and dictionary_learning's layout, and theirs by
khot.

Runs in .venv-sae (tools/set_up_peers.sh sae), where the real packages are.
"""

import importlib
import json
import sys
from types import ModuleType

import pytest
import torch

from khot.apps.sae import SparseAutoencoder

sae_lens = pytest.importorskip("sae_lens", reason="no sae-lens here: tools/set_up_peers.sh sae")
sparsify = pytest.importorskip("sparsify", reason="no eai-sparsify here: tools/set_up_peers.sh sae")

D, LATENTS, K = 12, 48, 5
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def made(activation="topk", **options):
    torch.manual_seed(0)
    autoencoder = SparseAutoencoder(D, LATENTS, K, activation, tied=False, **options)
    with torch.no_grad():
        for name, parameter in autoencoder.named_parameters():
            if name != "W_enc":
                parameter.normal_(std=0.4)
    if activation == "batch_topk":
        autoencoder.fit_threshold(inputs())
    return autoencoder.eval()


def inputs(seed=1):
    return torch.randn(200, D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("activation", "options"),
    [
        ("topk", {}),
        ("topk", {"scale_by_decoder_norm": True}),
        ("topk", {"subtract_b_dec": False}),
        ("topk", {"prefixes": (16,)}),
        ("sigmoid_topk", {}),
        ("batch_topk", {}),
        ("batch_topk", {"scale_by_decoder_norm": True, "prefixes": (16, 32)}),
        ("jumprelu", {"threshold": torch.linspace(0, 1, LATENTS)}),
    ],
)
def test_saelens_opens_what_we_write(activation, options, tmp_path):
    autoencoder = made(activation, **options)
    autoencoder.save(tmp_path)
    theirs = sae_lens.SAE.load_from_disk(str(tmp_path))
    x = inputs()
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), autoencoder(x).sae_out, **CLOSE)
        torch.testing.assert_close(theirs.encode(x), autoencoder.encode(x, dense=True), **CLOSE)
    l0 = (theirs.encode(x) > 0).sum(-1).float().mean().item()
    assert l0 == pytest.approx(autoencoder(x).l0.item(), abs=1e-3)


@pytest.mark.parametrize(
    "options", [{"transcoder": True, "d_out": 7}, {"transcoder": True, "skip": True}, {"skip": True}]
)
def test_saelens_opens_our_transcoders(options, tmp_path):
    autoencoder = made("jumprelu", threshold=0.3, **options)
    autoencoder.save(tmp_path)
    theirs = sae_lens.SAE.load_from_disk(str(tmp_path))
    x = inputs()
    y = torch.zeros(200, autoencoder.options.d_out)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), autoencoder(x, y).sae_out, **CLOSE)


@pytest.mark.parametrize("scaled", [False, True])
def test_we_open_what_saelens_writes(scaled, tmp_path):
    from sae_lens import JumpReLUSAE, JumpReLUSAEConfig, TopKSAE, TopKSAEConfig

    torch.manual_seed(3)
    for theirs in (
        TopKSAE(TopKSAEConfig(d_in=D, d_sae=LATENTS, k=K, rescale_acts_by_decoder_norm=scaled)),
        JumpReLUSAE(JumpReLUSAEConfig(d_in=D, d_sae=LATENTS, apply_b_dec_to_input=scaled)),
    ):
        with torch.no_grad():
            for name, parameter in theirs.named_parameters():
                parameter.copy_(
                    torch.rand_like(parameter) if name == "threshold" else 0.4 * torch.randn_like(parameter)
                )
        theirs.save_model(str(tmp_path))
        ours = SparseAutoencoder.load(tmp_path)
        with torch.no_grad():
            torch.testing.assert_close(ours(inputs()).sae_out, theirs(inputs()), **CLOSE)


@pytest.mark.parametrize("matryoshka", [False, True])
def test_we_open_training_folders_of_saelens_which_it_opens_for_training_only(matryoshka, tmp_path):
    from sae_lens import (
        BatchTopKTrainingSAE,
        BatchTopKTrainingSAEConfig,
        MatryoshkaBatchTopKTrainingSAE,
        MatryoshkaBatchTopKTrainingSAEConfig,
    )

    torch.manual_seed(4)
    if matryoshka:
        config = MatryoshkaBatchTopKTrainingSAEConfig(
            d_in=D, d_sae=LATENTS, k=K, matryoshka_widths=[16, LATENTS]
        )
        theirs = MatryoshkaBatchTopKTrainingSAE(config)
    else:
        theirs = BatchTopKTrainingSAE(BatchTopKTrainingSAEConfig(d_in=D, d_sae=LATENTS, k=K))
    with torch.no_grad():
        theirs.topk_threshold.fill_(0.6)
    theirs.save_model(str(tmp_path / "training"))
    theirs.save_inference_model(str(tmp_path / "inference"))
    inference = sae_lens.SAE.load_from_disk(str(tmp_path / "inference"))
    with pytest.raises(KeyError):
        sae_lens.SAE.load_from_disk(str(tmp_path / "training"))
    for folder in ("training", "inference"):
        ours = SparseAutoencoder.load(tmp_path / folder)
        with torch.no_grad():
            torch.testing.assert_close(ours(inputs()).sae_out, inference(inputs()), **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale_by_decoder_norm": True},
        {"subtract_b_dec": False},
        {"skip": True},
        {"transcoder": True, "skip": True},
    ],
)
def test_sparsify_opens_what_we_write(options, tmp_path):
    autoencoder = made(**options)
    autoencoder.save(tmp_path, "sparsify")
    theirs = sparsify.SparseCoder.load_from_disk(tmp_path)
    x, y = inputs(), inputs(seed=2)
    with torch.no_grad():
        found, wanted = theirs(x, y), autoencoder(x, y)
    torch.testing.assert_close(found.sae_out, wanted.sae_out, **CLOSE)
    torch.testing.assert_close(found.fvu, wanted.fvu, **CLOSE)
    acts = [part.latent_acts.sort(-1).values for part in (found, wanted)]
    torch.testing.assert_close(*acts, **CLOSE)


@pytest.mark.parametrize("fields", [{}, {"num_latents": 30}, {"transcode": True, "skip_connection": True}])
def test_we_open_what_sparsify_writes(fields, tmp_path):
    torch.manual_seed(5)
    theirs = sparsify.SparseCoder(D, sparsify.SparseCoderConfig(k=K, expansion_factor=4, **fields))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs.save_to_disk(tmp_path)
    assert json.loads((tmp_path / "cfg.json").read_text())["num_latents"] == fields.get("num_latents", 0)
    ours = SparseAutoencoder.load(tmp_path)
    x, y = inputs(), inputs(seed=2)
    dead = torch.zeros(theirs.num_latents, dtype=torch.bool)
    with torch.no_grad():
        found, wanted = ours(x, y, dead_mask=dead), theirs(x, y, dead_mask=dead)
    torch.testing.assert_close(found.sae_out, wanted.sae_out, **CLOSE)
    torch.testing.assert_close(found.fvu, wanted.fvu, **CLOSE)


def test_folders_go_from_sparsify_to_saelens_which_does_not_open_them_itself(tmp_path):
    torch.manual_seed(6)
    theirs = sparsify.SparseCoder(D, sparsify.SparseCoderConfig(k=K, expansion_factor=4))
    theirs.save_to_disk(tmp_path / "sparsify")
    SparseAutoencoder.load(tmp_path / "sparsify").save(tmp_path / "saelens")
    opened = sae_lens.SAE.load_from_disk(str(tmp_path / "saelens"))
    with torch.no_grad():
        torch.testing.assert_close(opened(inputs()), theirs(inputs()).sae_out, **CLOSE)


def test_we_open_the_dictionaries_of_dictionary_learning(tmp_path, monkeypatch):
    nnsight = ModuleType("nnsight")  # a remote model is no part of a dictionary
    nnsight.LanguageModel = object
    monkeypatch.setitem(sys.modules, "nnsight", nnsight)
    trainers = importlib.import_module("dictionary_learning.trainers.top_k")
    batch = importlib.import_module("dictionary_learning.trainers.batch_top_k")
    torch.manual_seed(7)
    for name, theirs in (
        ("AutoEncoderTopK", trainers.AutoEncoderTopK(D, LATENTS, K)),
        ("BatchTopKSAE", batch.BatchTopKSAE(D, LATENTS, K)),
    ):
        with torch.no_grad():
            theirs.encoder.bias.normal_(std=0.2)
            theirs.b_dec.normal_(std=0.2)
            theirs.threshold.fill_(0.7)
        torch.save(theirs.state_dict(), tmp_path / "ae.pt")
        (tmp_path / "config.json").write_text(json.dumps({"trainer": {"dict_class": name, "k": K}}))
        ours = SparseAutoencoder.load(tmp_path)
        with torch.no_grad():
            torch.testing.assert_close(ours(inputs()).sae_out, theirs(inputs()), **CLOSE)
