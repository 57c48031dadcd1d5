"""Folders of other tools: what we write and read back, what theirs look like, and what is refused."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from khot.apps.sae import SparseAutoencoder

ACTIVATIONS = ("topk", "batch_topk", "sigmoid_topk", "jumprelu")


def made(activation="topk", **options):
    torch.manual_seed(0)
    options = {**({"threshold": 0.3} if activation in ("jumprelu", "batch_topk") else {}), **options}
    autoencoder = SparseAutoencoder(6, 16, 3, activation, tied=False, **options)
    with torch.no_grad():
        for name, parameter in autoencoder.named_parameters():
            if name != "W_enc":
                parameter.normal_(std=0.5)
    return autoencoder.eval()


def inputs():
    return torch.randn(50, 6, generator=torch.Generator().manual_seed(1))


def same(first, second):
    found, wanted = first(inputs(), inputs()), second(inputs(), inputs())
    torch.testing.assert_close(found.sae_out, wanted.sae_out, rtol=1e-4, atol=1e-5)
    dense = [part.eval().encode(inputs(), dense=True) for part in (first, second)]
    torch.testing.assert_close(*dense, rtol=1e-4, atol=1e-5)


def edited(folder, name="cfg.json", **fields):
    path = folder / name
    config = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


@pytest.mark.parametrize("options", [{}, {"scale_by_decoder_norm": True}, {"subtract_b_dec": False}])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_saelens_folders_come_back(activation, options, tmp_path):
    if activation == "jumprelu":
        options = {key: value for key, value in options.items() if key != "scale_by_decoder_norm"}
    autoencoder = made(activation, **options)
    autoencoder.save(tmp_path, about={"hook_name": "blocks.3"})
    config = json.loads((tmp_path / "cfg.json").read_text())
    loaded = SparseAutoencoder.load(tmp_path)
    same(loaded, autoencoder)
    assert not loaded.training
    by_threshold = activation in ("batch_topk", "jumprelu")
    assert config["architecture"] == ("jumprelu" if by_threshold else "topk")
    assert config["metadata"]["hook_name"] == "blocks.3"
    assert loaded.k == 3
    assert load_file(tmp_path / "sae_weights.safetensors")["W_enc"].shape == (6, 16)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale_by_decoder_norm": True},
        {"subtract_b_dec": False},
        {"skip": True},
        {"transcoder": True, "skip": True},
        {"activation": "sigmoid_topk"},
        {"multi_topk": True},
        {"dtype": torch.float64},
    ],
)
def test_sparsify_folders_come_back(options, tmp_path):
    autoencoder = made(**options)
    autoencoder.save(tmp_path, "sparsify")
    loaded = SparseAutoencoder.load(tmp_path)
    found, wanted = loaded(inputs(), inputs()), autoencoder(inputs(), inputs())
    torch.testing.assert_close(found.sae_out, wanted.sae_out, rtol=1e-4, atol=1e-5)
    assert loaded.W_enc.dtype == autoencoder.W_enc.dtype
    assert loaded.options.multi_topk == autoencoder.options.multi_topk


def test_transcoders_of_saelens_are_jumprelu(tmp_path):
    for options in ({"transcoder": True, "d_out": 4}, {"transcoder": True, "skip": True}, {"skip": True}):
        autoencoder = made("jumprelu", **options)
        autoencoder.save(tmp_path)
        loaded = SparseAutoencoder.load(tmp_path)
        y = torch.zeros(50, autoencoder.options.d_out)
        torch.testing.assert_close(
            loaded(inputs(), y).sae_out, autoencoder(inputs(), y).sae_out, rtol=1e-4, atol=1e-5
        )
    with pytest.raises(ValueError, match="SAELens has no topk transcoder"):
        made(transcoder=True).save(tmp_path)


def test_what_sparsify_cannot_express_is_refused_and_nothing_written(tmp_path):
    for autoencoder, message in (
        (made("batch_topk"), "sparsify has no batch_topk"),
        (made("jumprelu"), "sparsify has no jumprelu"),
        (made(transcoder=True, d_out=4), "no transcoder from 6 to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            autoencoder.save(tmp_path / "new", "sparsify")
    with pytest.raises(ValueError, match="format must be one of saelens, sparsify, got 'npz'"):
        made().save(tmp_path / "new", "npz")
    with pytest.raises(ValueError, match="as_jumprelu needs x, batch_topk has no threshold yet"):
        made("batch_topk", threshold=None).save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": ...}, "does not state 'architecture'"),
        ({"architecture": "standard"}, "has architecture 'standard'; khot reads topk"),
        ({"architecture": "jumprelu"}, "lacks threshold, without which jumprelu is plain ReLU"),
        ({"k": ...}, "does not state 'k'"),
        ({"k": 4}, "has k = 4, the weights were saved with 3"),
        ({"dtype": ...}, "does not state 'dtype'"),
        ({"dtype": "float31"}, "has dtype 'float31'"),
        ({"d_in": 7}, "has d_in = 7, the weights were saved with 6"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations = 'layer_norm'; khot reads 'none'"),
        ({"apply_b_dec_to_input": ...}, "does not state 'apply_b_dec_to_input'"),
    ],
)
def test_saelens_folders_that_do_not_say_what_they_are_load_nothing(fields, message, tmp_path):
    made().save(tmp_path)
    edited(tmp_path, **fields)
    with pytest.raises(ValueError) as error:
        SparseAutoencoder.load(tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation": ...}, "does not state 'activation'"),
        ({"activation": "groupmax"}, "has activation 'groupmax'; khot reads 'topk'"),
        ({"k": ...}, "does not state 'k'"),
        ({"k": 2.5}, "which must be a whole number"),
        ({"num_latents": 17}, "has num_latents = 17, the weights were saved with 16"),
    ],
)
def test_sparsify_folders_that_do_not_say_what_they_are_load_nothing(fields, message, tmp_path):
    made().save(tmp_path, "sparsify")
    edited(tmp_path, **fields)
    with pytest.raises(ValueError) as error:
        SparseAutoencoder.load(tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize("format", ["saelens", "sparsify"])
def test_damaged_and_foreign_files_load_nothing(format, tmp_path):
    made().save(tmp_path, format)
    weights = next(tmp_path.glob("*.safetensors"))
    whole, tensors = weights.read_bytes(), load_file(weights)

    def refused(message):
        with pytest.raises(ValueError) as error:
            SparseAutoencoder.load(tmp_path)
        assert message in str(error.value)

    weights.write_bytes(whole[: len(whole) // 2])
    refused("is not a whole safetensors file")
    name = "W_dec"
    save_file({key: value for key, value in tensors.items() if key != name}, weights)
    refused("lacks W_dec")
    save_file({**tensors, "b_dec": torch.zeros(5)}, weights)
    refused("b_dec has the shape (5,), the configuration asks for (6,)")
    save_file({**tensors, "b_dec": torch.full((6,), torch.nan)}, weights)
    refused("b_dec has entries that are not finite")
    save_file({**tensors, "other": torch.zeros(5)}, weights)
    refused("other")
    weights.write_bytes(whole)
    (tmp_path / "cfg.json").write_text("{")
    refused("is not JSON")
    (tmp_path / "cfg.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*cfg\.json"):
        SparseAutoencoder.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is none of sae_weights\.safetensors"):
        SparseAutoencoder.load(tmp_path / "nowhere")


def test_a_writer_that_fails_leaves_the_old_folder(tmp_path, monkeypatch):
    first = made()
    first.save(tmp_path)
    monkeypatch.setattr(
        "safetensors.torch.save_file", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        made(k_aux=2, scale_by_decoder_norm=True).save(tmp_path)
    same(SparseAutoencoder.load(tmp_path), first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cfg.json", "sae_weights.safetensors"]


def dictionary(folder, kind, tensors, k=3, **trainer):
    folder.mkdir(exist_ok=True)
    torch.save(tensors, folder / "ae.pt")
    config = {"trainer": {"dict_class": kind, "k": k, **trainer}}
    (folder / "config.json").write_text(json.dumps(config))


def test_dictionary_learning_folders_are_read(tmp_path):
    wanted = made()
    linear = {
        "encoder.weight": wanted.W_enc.detach(),
        "encoder.bias": wanted.b_enc.detach(),
        "decoder.weight": wanted.W_dec.detach().T,
        "b_dec": wanted.b_dec.detach(),
        "k": torch.tensor(3, dtype=torch.int),
        "threshold": torch.tensor(0.3),
    }
    dictionary(tmp_path, "AutoEncoderTopK", linear)
    same(SparseAutoencoder.load(tmp_path), wanted)
    dictionary(tmp_path, "BatchTopKSAE", linear)
    batch = made("batch_topk")
    same(SparseAutoencoder.load(tmp_path), batch)
    plain = {
        "W_enc": wanted.W_enc.detach().T,
        "W_dec": wanted.W_dec.detach(),
        "b_enc": wanted.b_enc.detach(),
        "b_dec": wanted.b_dec.detach(),
    }
    groups = {"group_sizes": torch.tensor([4, 12]), "k": torch.tensor(3), "threshold": torch.tensor(0.3)}
    dictionary(tmp_path, "MatryoshkaBatchTopKSAE", {**plain, **groups})
    loaded = SparseAutoencoder.load(tmp_path)
    same(loaded, batch)
    assert loaded.options.prefixes == (4, 16)
    levels = torch.rand(16, generator=torch.Generator().manual_seed(3))
    dictionary(tmp_path, "JumpReluAutoEncoder", {**plain, "threshold": levels})
    same(SparseAutoencoder.load(tmp_path), made("jumprelu", threshold=levels, subtract_b_dec=False))


class Trap:
    def __reduce__(self):
        return (open, ("executed", "w"))


def test_dictionary_learning_folders_execute_nothing_and_state_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dictionary(tmp_path, "AutoEncoderTopK", {"encoder.weight": Trap()})
    for spoil in (lambda: None, lambda: (tmp_path / "ae.pt").write_bytes(pickle.dumps(Trap()))):
        spoil()
        with pytest.raises(ValueError, match="does not hold tensors alone"):
            SparseAutoencoder.load(tmp_path)
    assert not (tmp_path / "executed").exists()
    tensors = {"W_enc": torch.zeros(6, 16), "k": torch.tensor(4)}
    for kind, k, message in (
        ("AutoEncoder", 3, "has dict_class 'AutoEncoder'"),
        ("AutoEncoderTopK", 3, "has k = 3, ae.pt has 4"),
        ("AutoEncoderTopK", None, "does not state 'k'"),
        ("JumpReluAutoEncoder", None, "lacks threshold"),
    ):
        dictionary(tmp_path, kind, tensors, k=k)
        with pytest.raises(ValueError, match=message):
            SparseAutoencoder.load(tmp_path)


def test_gemma_scope_files_are_read(tmp_path):
    wanted = made("jumprelu", threshold=torch.linspace(0, 1, 16), subtract_b_dec=False)
    arrays = {name: tensor.detach().numpy() for name, tensor in wanted.named_parameters()}
    arrays |= {"W_enc": arrays["W_enc"].T, "threshold": wanted.threshold.numpy()}
    np.savez(tmp_path / "params.npz", **arrays)
    same(SparseAutoencoder.load(tmp_path), wanted)
    lower = {name.replace("W_", "w_"): array for name, array in arrays.items()}
    np.savez(tmp_path / "other.npz", **lower)
    same(SparseAutoencoder.load(tmp_path / "other.npz"), wanted)
    np.savez(tmp_path / "params.npz", **{n: a for n, a in arrays.items() if n != "threshold"})
    with pytest.raises(ValueError, match="lacks threshold"):
        SparseAutoencoder.load(tmp_path)
    whole = (tmp_path / "other.npz").read_bytes()
    (tmp_path / "params.npz").write_bytes(whole[:200])
    with pytest.raises(ValueError, match="is not a whole npz file"):
        SparseAutoencoder.load(tmp_path)


def test_training_folders_of_saelens_are_read_with_their_threshold(tmp_path):
    wanted = made("batch_topk", scale_by_decoder_norm=True)
    tensors = {name: tensor.detach().contiguous() for name, tensor in wanted.named_parameters()}
    tensors |= {
        "W_enc": tensors["W_enc"].T.contiguous(),
        "topk_threshold": torch.tensor(0.3, dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "sae_weights.safetensors")
    config = {"architecture": "batchtopk", "d_in": 6, "d_sae": 16, "k": 3.0, "dtype": "float32"}
    config |= {"apply_b_dec_to_input": True, "rescale_acts_by_decoder_norm": True}
    (tmp_path / "cfg.json").write_text(json.dumps(config))
    same(SparseAutoencoder.load(tmp_path), wanted)
    (tmp_path / "cfg.json").write_text(
        json.dumps({**config, "architecture": "matryoshka_batchtopk", "matryoshka_widths": [8, 16]})
    )
    assert SparseAutoencoder.load(tmp_path).options.prefixes == (8, 16)


def test_a_folder_of_another_format_is_left_alone(tmp_path):
    for first, second in (("saelens", "sparsify"), ("sparsify", "saelens")):
        folder = tmp_path / first
        SparseAutoencoder(8, 16, 2).save(folder, format=first)
        with pytest.raises(FileExistsError, match="of another format"):
            SparseAutoencoder(8, 16, 3).save(folder, format=second)
        assert SparseAutoencoder.load(folder).k == 2
