"""Autoencoders, activations and states that are damaged or made to harm: a clear error, nothing is loaded."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from khot.apps.sae import ActivationStore, SparseAutoencoder, TrainSettings, collect_activations, train
from khot.files.tensors import read_tensors, write_tensors

DEEP = "[" * 100_000


def refused(folder, message):
    with pytest.raises(ValueError, match=message):
        SparseAutoencoder.load(folder)


@pytest.mark.parametrize("format", ["saelens", "sparsify"])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_in": 10**15}, "has the shape .*, the configuration asks for"),
        ({"d_in": 2**63}, "has the shape .*, the configuration asks for"),
        ({"d_in": -6}, "has the shape .*, the configuration asks for"),
        ({"d_in": [6]}, "which must be a whole number"),
        ({"k": 10**15}, "k must be an integer in 1"),
        ({"k": True}, "which must be a whole number"),
        ({"k": "3"}, "which must be a whole number"),
    ],
)
def test_a_configuration_that_asks_for_too_much_takes_no_memory(format, fields, message, tmp_path):
    SparseAutoencoder(6, 16, 3).save(tmp_path, format)
    weights = next(tmp_path.glob("*.safetensors"))
    save_file(load_file(weights), weights)  # without the configuration of its own, as other tools write it
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps({**config, **fields}))
    refused(tmp_path, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_sae": 10**15}, "has the shape"),
        ({"dtype": "int64"}, "which is no type of real numbers"),
        ({"dtype": "load"}, "which is no type of real numbers"),
        ({"dtype": "float8_e4m3fn"}, "which is no type of real numbers"),
        ({"dtype": ["float32"]}, "which is no type of real numbers"),
        ({"architecture": ["topk"]}, "khot reads topk"),
        ({"architecture": "jumprelu_transcoder", "d_out": 10**15}, "lacks threshold"),
    ],
)
def test_fields_of_saelens(fields, message, tmp_path):
    SparseAutoencoder(6, 16, 3).save(tmp_path)
    weights = tmp_path / "sae_weights.safetensors"
    save_file(load_file(weights), weights)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps({**config, **fields}))
    refused(tmp_path, message)


@pytest.mark.parametrize("format", ["saelens", "sparsify"])
def test_a_skip_that_no_file_holds_takes_no_memory(format, tmp_path):
    """All other tensors grow with d_in, the skip with its square: 4 TB here, for a file of 8 MB."""
    d = 1_000_000
    vectors = {"W_enc": torch.zeros(d, 1), "W_dec": torch.zeros(1, d), "b_enc": torch.zeros(1)}
    config = {"d_in": d, "d_out": d, "d_sae": 1, "num_latents": 1, "k": 1, "dtype": "float32"}
    if format == "saelens":
        save_file({**vectors, "threshold": torch.zeros(1)}, tmp_path / "sae_weights.safetensors")
        config |= {"architecture": "jumprelu_skip_transcoder", "apply_b_dec_to_input": False}
    else:
        encoder = {"encoder.weight": vectors["W_enc"].T.contiguous(), "encoder.bias": vectors["b_enc"]}
        save_file({**encoder, "W_dec": vectors["W_dec"]}, tmp_path / "sae.safetensors")
        config |= {"activation": "topk", "skip_connection": True}
    (tmp_path / "cfg.json").write_text(json.dumps(config))
    refused(tmp_path, "lacks W_skip")


@pytest.mark.parametrize("format", ["saelens", "sparsify"])
def test_switches_are_true_or_false(format, tmp_path):
    """``bool("false")`` is True."""
    SparseAutoencoder(6, 16, 3).save(tmp_path, format)
    weights = next(tmp_path.glob("*.safetensors"))
    save_file(load_file(weights), weights)
    config = json.loads((tmp_path / "cfg.json").read_text())
    switches = [field for field, value in config.items() if isinstance(value, bool)]
    assert len(switches) == (2 if format == "saelens" else 4)
    for field in switches:
        (tmp_path / "cfg.json").write_text(json.dumps({**config, field: "false"}))
        refused(tmp_path, f"has {field} = 'false', which must be true or false")


@pytest.mark.parametrize(
    ("threshold", "known"), [(0.5, True), (-1.0, False), (float("nan"), None), (float("inf"), None)]
)
def test_a_threshold_of_training_that_is_not_known(threshold, known, tmp_path):
    """SAELens writes −1; a NaN is not taken for it."""
    SparseAutoencoder(6, 16, 3).save(tmp_path)
    weights = tmp_path / "sae_weights.safetensors"
    save_file({**load_file(weights), "topk_threshold": torch.tensor(threshold)}, weights)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps({**config, "architecture": "batchtopk"}))
    if known is None:
        refused(tmp_path, "threshold must be finite")
    else:
        found = SparseAutoencoder.load(tmp_path).threshold
        assert found.item() == (threshold if known else -1.0)


@pytest.mark.parametrize("format", ["saelens", "sparsify"])
def test_types_and_texts(format, tmp_path):
    SparseAutoencoder(6, 16, 3).save(tmp_path, format)
    weights = next(tmp_path.glob("*.safetensors"))
    tensors = load_file(weights)
    for change in (tensors["b_dec"].long(), tensors["b_dec"].to(torch.complex64), tensors["b_dec"].bool()):
        save_file({**tensors, "b_dec": change}, weights)
        refused(tmp_path, "b_dec has the type")
    name = "W_enc" if format == "saelens" else "encoder.weight"
    for change in (torch.zeros(6), torch.zeros(6, 16, 2), torch.zeros(())):
        save_file({**tensors, name: change}, weights)
        refused(tmp_path, "W_enc must be a matrix|W_enc has the shape")
    save_file(tensors, weights)
    for text in (DEEP, "{", "[]", "NaN", '{"k": 1e999}'):
        (tmp_path / "cfg.json").write_text(text)
        refused(tmp_path, r"cfg\.json (is not JSON|must hold an object)")


def dictionary(folder, value, config=None):
    torch.save(value, folder / "ae.pt")
    (folder / "config.json").write_text(
        json.dumps(config or {"trainer": {"dict_class": "AutoEncoderTopK", "k": 3}})
    )


PLAIN = {
    "W_enc": torch.ones(6, 16),
    "W_dec": torch.ones(16, 6),
    "b_enc": torch.ones(16),
    "b_dec": torch.ones(6),
}


def test_dictionaries_that_are_no_tensors_by_name(tmp_path):
    dictionary(tmp_path, PLAIN)
    assert SparseAutoencoder.load(tmp_path).num_latents == 16
    for value, message in (
        ([torch.zeros(3)], "must hold tensors by name, got list"),
        (torch.zeros(3), "must hold tensors by name, got Tensor"),
        ({**PLAIN, "W_enc": 3}, "'W_enc' must be a dense tensor"),
        ({**PLAIN, 3: torch.zeros(2)}, "3 must be a dense tensor"),
        ({**PLAIN, "W_enc": torch.zeros(6, 16).to_sparse()}, "'W_enc' must be a dense tensor"),
        (
            {**PLAIN, "W_enc": torch.zeros(1).expand(10**7, 10**7)},
            "'W_enc' must be a dense tensor that the file",
        ),
        ({**PLAIN, "W_enc": torch.zeros(6, 16, device="meta")}, "'W_enc' must be a dense tensor"),
        ({**PLAIN, "W_enc": torch.zeros(6)}, "W_enc must be a matrix"),
        ({**PLAIN, "W_enc": torch.zeros(6, 16).long()}, "W_enc must be a matrix of real numbers"),
        ({**PLAIN, "W_dec": torch.zeros(16, 7)}, r"W_dec has the shape \(16, 7\)"),
        ({**PLAIN, "k": torch.zeros(2)}, "k must be one number"),
        ({**PLAIN, "k": torch.tensor(float("inf"))}, r"has k = 3, ae\.pt has inf"),
        ({**PLAIN, "group_sizes": torch.zeros(2)}, "group_sizes must be whole numbers"),
        ({**PLAIN, "group_sizes": torch.zeros(2) * 1j}, "group_sizes must be whole numbers"),
        ({**PLAIN, "group_sizes": torch.ones(1).bool()}, "group_sizes must be whole numbers"),
        (
            {"encoder.weight": torch.ones(16, 6), "decoder.weight": torch.ones(6)},
            r"decoder\.weight must be a matrix",
        ),
        (
            {"encoder.weight": torch.ones(16, 6), "decoder.weight": torch.ones(6, 16)},
            "lacks b_enc|lacks b_dec",
        ),
        ({**PLAIN, "../b_dec": torch.zeros(6)}, "has ../b_dec, which"),
    ):
        dictionary(tmp_path, value)
        refused(tmp_path, message)


def test_configurations_of_dictionaries(tmp_path):
    for config, message in (
        ({"trainer": 3}, "must state 'dict_class' in an object"),
        ({"trainer": ["dict_class"]}, "must state 'dict_class' in an object"),
        ({"trainer": {"dict_class": ["AutoEncoderTopK"], "k": 3}}, "has dict_class"),
        ({"trainer": {"dict_class": "AutoEncoderTopK", "k": 10**12}}, "k must be an integer in 1"),
    ):
        dictionary(tmp_path, PLAIN, config)
        refused(tmp_path, message)
    for threshold in (torch.zeros(16).long(), torch.zeros(16) * 1j):
        config = {"trainer": {"dict_class": "JumpReluAutoEncoder"}}
        dictionary(tmp_path, {**PLAIN, "threshold": threshold}, config)
        refused(tmp_path, "threshold must be real numbers")


def test_files_of_torch_that_are_cut_packed_or_damaged(tmp_path):
    dictionary(tmp_path, {**PLAIN, "W_enc": torch.zeros(6, 200_000)})
    whole = (tmp_path / "ae.pt").read_bytes()
    for content in (
        b"",
        whole[:100],
        whole[: len(whole) // 2],
        whole[:-30],
        b"\x80\x02garbage",
        b"PK\x03\x04",
    ):
        (tmp_path / "ae.pt").write_bytes(content)
        refused(tmp_path, "does not hold tensors alone")
    with zipfile.ZipFile(io.BytesIO(whole)) as stored:
        members = {member.filename: stored.read(member) for member in stored.infolist()}
    with zipfile.ZipFile(tmp_path / "ae.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    refused(tmp_path, "more than 20 times as many")


def npz(path, arrays, **changes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            archive.writestr(f"{name}.npy", changes.get(name, lambda raw: raw)(content.getvalue()))


ARRAYS = {
    "W_enc": np.ones((6, 16), np.float32),
    "W_dec": np.ones((16, 6), np.float32),
    "b_enc": np.ones(16, np.float32),
    "b_dec": np.ones(6, np.float32),
    "threshold": np.ones(16, np.float32),
}


def test_archives_of_arrays_that_are_none(tmp_path):
    path = tmp_path / "params.npz"
    npz(path, ARRAYS)
    assert SparseAutoencoder.load(tmp_path).num_latents == 16
    whole = path.read_bytes()
    for change, message in (
        ({"W_enc": np.zeros((3000, 3000), np.float32)}, "more than 20 times as many"),
        ({"W_enc": np.array([{"a": 1}], dtype=object)}, "is not a whole npz file of arrays"),
        ({"W_enc": np.array(["a"])}, "is not a whole npz file of arrays"),
        ({"W_enc": np.ones((6, 16), np.int64)}, "is not a whole npz file of arrays"),
        ({"W_enc": np.ones((6, 16), np.complex64)}, "is not a whole npz file of arrays"),
        ({"W_enc": np.ones(6, np.float32)}, "W_enc must be a matrix"),
        ({"W_dec": np.ones((17, 6), np.float32)}, "W_dec has the shape"),
        ({"threshold": np.ones(3, np.float32)}, "threshold must be finite"),
        ({"b_dec": np.full(6, np.nan, np.float32)}, "b_dec has entries that are not finite"),
        ({"../b_dec": np.ones(6, np.float32)}, r"has \.\./b_dec, which"),
    ):
        npz(path, {**ARRAYS, **change})
        refused(tmp_path, message)
    npz(path, ARRAYS, W_enc=lambda raw: raw.replace(b"(6, 16), }  ", b"(6, 1600), }"))
    refused(tmp_path, r"W_enc\.npy has float32 of the shape \(6, 1600\) in")
    npz(path, ARRAYS, W_enc=lambda raw: raw[:60])
    refused(tmp_path, "is not a whole npz file of arrays")
    for content in (b"", whole[:200], whole[:-30], b"\x93NUMPY"):
        path.write_bytes(content)
        refused(tmp_path, "is not a whole npz file of arrays")
    np.save(tmp_path / "one.npy", ARRAYS["W_enc"])
    path.write_bytes((tmp_path / "one.npy").read_bytes())
    refused(tmp_path, "is not a whole npz file of arrays")


@pytest.mark.parametrize("dtype", [">f4", np.longdouble])
def test_numbers_that_torch_lacks(dtype, tmp_path):
    npz(tmp_path / "params.npz", {**ARRAYS, "W_enc": np.ones((6, 16), dtype)})
    refused(tmp_path, "is not a whole npz file of arrays")


@pytest.mark.parametrize(("place", "value"), [(6, 1), (6, 32), (8, 99), (8, 14)], ids=str)
def test_archives_that_zipfile_refuses_in_its_own_ways(place, value, tmp_path):
    """Encrypted, patched, packed in an unknown way, and LZMA that is none."""
    path = tmp_path / "params.npz"
    npz(path, ARRAYS)
    content = bytearray(path.read_bytes())
    content[place] = value
    content[content.index(b"PK\x01\x02") + place + 2] = value
    path.write_bytes(content)
    refused(tmp_path, "is not a whole npz file of arrays")


# NumPy parses the header of an array as Python: what it raises depends on the text.
SHAPES = {
    "unclosed": "(3,",
    "nested": "(" * 5000,
    "recursive": f"({'-' * 9000}1, 1)",
    "indented": "(1, 1)}\n  {}\n {",
    "boolean": "(True, 1)",
    "beyond 64 bits": f"(0, {10**20})",
    "negative": "(-1, 6)",
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def damaged_array(request):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {request.param}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4800)


def test_damaged_headers_of_arrays(damaged_array, store, tmp_path):
    npz(tmp_path / "params.npz", ARRAYS, W_enc=lambda raw: damaged_array)
    refused(tmp_path, "is not a whole npz file of arrays")
    (store / "activations-00000.npy").write_bytes(damaged_array)
    with pytest.raises(ValueError, match=r"activations-00000\.npy (cannot be read|has the shape)"):
        ActivationStore(store)


@pytest.fixture
def store(tmp_path):
    network = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 6))
    tokens = torch.randint(0, 50, (4, 10, 5), generator=torch.Generator().manual_seed(0))
    collect_activations(network, "1", tokens, tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d": 7}, r"has the shape \(200, 6\), store\.json says d = 7"),
        ({"d": -1}, "a size must be a whole number ≥ 0, got -1"),
        ({"d": "6"}, "a size must be a whole number ≥ 0, got '6'"),
        ({"d": 6.5}, "a size must be a whole number"),
        ({"d": "x"}, "does not describe activations"),
        ({"shard_rows": [-200]}, "a size must be a whole number"),
        ({"shard_rows": ["200"]}, "a size must be a whole number"),
        ({"shard_rows": [1e300]}, "a size must be a whole number"),
        ({"shard_rows": "200"}, "a size must be a whole number"),
        ({"shard_rows": {"a": 1}}, "does not describe activations"),
        ({"shard_rows": ["../../x"]}, "does not describe activations"),
        ({"shard_rows": [200, 200]}, "cannot be read"),
        ({"norm_limit": "x"}, "does not describe activations"),
        ({"norm_limit": "nan"}, "norm_limit must be a number"),
        ({"about": 3}, "does not describe activations"),
    ],
)
def test_a_store_that_describes_other_files(fields, message, store):
    document = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps({**document, **fields}))
    with pytest.raises(ValueError, match=message):
        ActivationStore(store)


def test_a_store_whose_files_are_something_else(store):
    file = store / "activations-00000.npy"
    for array, message in (
        (np.zeros((200, 6), np.int64), "must hold an array of float16 or float32"),
        (np.array([["a"] * 6] * 200), "must hold an array of float16 or float32"),
        (np.zeros((200, 6, 2), np.float32), "has the shape"),
        (np.zeros(200, np.float32), "has the shape"),
        (np.array([{"a": 1}] * 200, dtype=object), "cannot be read"),
    ):
        np.save(file, array)
        with pytest.raises(ValueError, match=message):
            ActivationStore(store)
    np.savez(store / "other.npz", a=np.zeros((200, 6), np.float32))
    file.write_bytes((store / "other.npz").read_bytes())
    with pytest.raises(ValueError, match=r"must hold an array of|cannot be read"):
        ActivationStore(store)
    (store / "store.json").write_text(DEEP)
    with pytest.raises(ValueError, match="does not describe activations"):
        ActivationStore(store)


def test_places_outside_the_tokens(store):
    np.save(store / "rows-00000.npy", np.full(200, 10**6, np.int32))
    with pytest.raises(ValueError, match="row 3 is at token 1000000, of 200 that were kept"):
        ActivationStore(store).context(3)


SETTINGS = TrainSettings(num_latents=24, k=3, steps=20, batch_size=64)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t, a: t.pop("model.W_enc"), r"lacks model\.W_enc"),
        (lambda t, a: t.pop("idle"), "lacks idle"),
        (lambda t, a: t.update({"model.b_dec": torch.zeros(1)}), r"model\.b_dec has the shape \(1,\)"),
        (lambda t, a: t.update({"idle": torch.zeros(24)}), "idle has the type torch.float32"),
        (lambda t, a: t.update({"model.more": torch.zeros(1)}), r"has model\.more, which"),
        (lambda t, a: t.update({"../x": torch.zeros(1)}), r"has \.\./x, which"),
        (lambda t, a: t.pop("optimizer.1.step"), r"lacks optimizer\.1\.step"),
        (lambda t, a: t.update({"optimizer.77.step": torch.zeros(())}), r"has optimizer\.77\.step"),
        (lambda t, a: a.update(run=3), "is not the state of a run"),
        (lambda t, a: a.update(done=10**6), "a history that no run with these settings can have"),
        (lambda t, a: a.update(done="3"), "a history that no run with these settings can have"),
        (lambda t, a: a.update(history=[]), "a history that no run with these settings can have"),
        (lambda t, a: a["history"].update(fvu=3), "a history whose fvu is 3"),
    ],
)
def test_the_state_of_no_run_is_refused(edit, message, store, tmp_path):
    data = ActivationStore(store)
    train(data, SETTINGS, tmp_path, stop_after=3)
    state = tmp_path / "state.safetensors"
    tensors, about = read_tensors(state)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    edit(tensors, about)
    write_tensors(tensors, about, state)
    before = state.read_bytes()
    with pytest.raises(ValueError, match=message):
        train(data, SETTINGS, tmp_path)
    assert state.read_bytes() == before
