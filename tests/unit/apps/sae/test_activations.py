"""Activations on disk: those that hooks give, bounded, resumable, in their context; and batches of them."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from khot.apps.sae import ActivationStore, ShuffledActivations, collect_activations


class Counting(nn.Module):
    """An embedding, a layer, and what must never be reached."""

    def __init__(self, after=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.layer, self.after = nn.Embedding(50, 8), nn.Linear(8, 6), after
        self.calls = 0

    def forward(self, input_ids, attention_mask=None):
        self.calls += 1
        out = self.layer(self.embed(input_ids))
        if not self.after:
            raise AssertionError("what comes after the hook point was computed")
        return out


def texts(count=7, length=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 50, (4, length), generator=generator) for _ in range(count)]


def wanted(model, batches, skip=0):
    with torch.no_grad():
        return torch.cat([model.layer(model.embed(batch))[:, skip:].flatten(0, 1) for batch in batches])


def test_what_hooks_give_is_on_disk_and_the_rest_is_not_computed(tmp_path):
    model = Counting(after=False)
    store = collect_activations(model, "layer", texts(), tmp_path, skip_positions=2, batches_per_shard=3)
    assert len(store.shard_rows) == 3
    torch.testing.assert_close(store.read(range(len(store))), wanted(model, texts(), skip=2))
    torch.testing.assert_close(store.read([83, 0, 40]), wanted(model, texts(), skip=2)[[83, 0, 40]])
    assert model.training
    with pytest.raises(IndexError, match=r"rows must be in 0 … 83, got 84"):
        store.read([84])


def test_rows_are_shown_in_their_context(tmp_path):
    store = collect_activations(Counting(), "layer", texts(), tmp_path, skip_positions=2, batches_per_shard=3)
    tokens = torch.cat(texts())
    for row in (0, 14, 83):
        sequence, position = divmod(row, 3)
        line, place = store.context(row, before=1, after=1)
        assert line[place] == tokens[sequence, position + 2]
        assert line[0] == tokens[sequence, position + 1]
    floats = collect_activations(
        nn.Sequential(nn.Linear(3, 2)), "0", [torch.randn(4, 3)], tmp_path / "floats"
    )
    with pytest.raises(ValueError, match="no tokens were kept"):
        floats.context(0)


def test_padding_and_large_norms_stay_out(tmp_path):
    model, batch = Counting(), texts(1, 6)[0]
    mask = torch.arange(6) < torch.tensor([[6], [2], [4], [1]])
    store = collect_activations(
        model, "layer", [{"input_ids": batch, "attention_mask": mask.long()}], tmp_path
    )
    torch.testing.assert_close(store.read(range(13)), wanted(model, [batch]).view(4, 6, 6)[mask])
    line, place = store.context(12)
    assert line[place] == batch[3, 0]
    with torch.no_grad():
        model.embed.weight[7] *= 100
    batches = [torch.full((2, 5), 3), torch.tensor([[7, 1, 2, 3, 4]])]
    store = collect_activations(
        model, "layer", batches, tmp_path / "norms", largest_norm=5.0, batches_per_shard=1
    )
    median = wanted(model, batches[:1]).norm(dim=-1).median().item()
    assert store.norm_limit == pytest.approx(5 * median)
    norms = wanted(model, batches).norm(dim=-1)
    assert len(store) == int((norms <= store.norm_limit).sum()) < 15


def test_a_stopped_collection_goes_on(tmp_path):
    class Stopped(Exception):
        pass

    def stop(message, share):
        if share > 0.6:
            raise Stopped

    model = Counting()
    with pytest.raises(Stopped):
        collect_activations(model, "layer", texts(), tmp_path, batches_per_shard=2, report=stop)
    calls = model.calls
    store = collect_activations(model, "layer", texts(), tmp_path, batches_per_shard=2)
    assert model.calls - calls == 3  # four batches were on disk
    torch.testing.assert_close(store.read(range(len(store))), wanted(model, texts()))
    calls = model.calls
    collect_activations(model, "layer", texts(), tmp_path, batches_per_shard=2)
    assert model.calls == calls
    with pytest.raises(ValueError, match="is of a collection with batches_per_shard = 2, asked for 3"):
        collect_activations(model, "layer", texts(), tmp_path, batches_per_shard=3)
    with pytest.raises(ValueError, match='with text = null, asked for "other"'):
        collect_activations(model, "layer", texts(), tmp_path, batches_per_shard=2, about={"text": "other"})
    assert len(ActivationStore(tmp_path, shards=2)) == 80


def test_types_of_the_files(tmp_path):
    model = Counting()
    half = collect_activations(model, "layer", texts(), tmp_path / "half", dtype="float16")
    assert np.load(tmp_path / "half" / "activations-00000.npy").dtype == np.float16
    torch.testing.assert_close(half.read(range(140)), wanted(model, texts()), rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        model.layer.weight *= 1e6
    with pytest.raises(ValueError, match="do not fit in float16"):
        collect_activations(model, "layer", texts(), tmp_path / "over", dtype="float16")


def test_what_is_wrong_is_named(tmp_path):
    model = Counting()
    for options, message in (
        (
            {"hook_point": "layers"},
            "hook_point must be the name of a module, got 'layers'; there are embed, layer",
        ),
        ({"dtype": "int8"}, "dtype must be 'float16' or 'float32', got 'int8'"),
        ({"skip_positions": -1}, "skip_positions must be at least 0, got -1"),
        ({"largest_norm": 0.0}, "largest_norm must be a finite number > 0, got 0.0"),
        ({"batches": []}, "batches gave no vectors"),
    ):
        given = {"hook_point": "layer", "batches": texts(1), **options}
        with pytest.raises(ValueError) as error:
            collect_activations(model, given.pop("hook_point"), given.pop("batches"), tmp_path, **given)
        assert message in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"there is no .*store\.json"):
        ActivationStore(tmp_path / "nowhere")
    collect_activations(model, "layer", texts(), tmp_path)
    whole = (tmp_path / "activations-00000.npy").read_bytes()
    (tmp_path / "activations-00000.npy").write_bytes(whole[:300])
    with pytest.raises(ValueError, match=r"activations-00000\.npy cannot be read"):
        ActivationStore(tmp_path)
    (tmp_path / "activations-00000.npy").write_bytes(whole)
    document = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps({**document, "shard_rows": [3]}))
    with pytest.raises(ValueError, match=r"has 140 rows, store\.json says 3"):
        ActivationStore(tmp_path)


@pytest.mark.parametrize("buffer", [32, 64, 1000])
def test_an_epoch_has_every_row_once_in_an_order_of_its_own(buffer, tmp_path):
    store = collect_activations(Counting(), "layer", texts(16), tmp_path, batches_per_shard=5)
    rows = store.read(range(320))
    batches = ShuffledActivations(store, 32, seed=3, buffer_rows=buffer)
    assert batches.steps_per_epoch == 10

    def places(epoch, of=batches):
        seen = torch.cat([of[10 * epoch + step] for step in range(10)])
        return [int((rows - row).abs().sum(-1).argmin()) for row in seen], seen

    first, seen = places(0)
    torch.testing.assert_close(torch.sort(seen.sum(-1)).values, torch.sort(rows.sum(-1)).values)
    assert first != places(1)[0]
    assert first == places(0)[0]  # whatever was read in between
    assert first != places(0, ShuffledActivations(store, 32, seed=4, buffer_rows=buffer))[0]
    with pytest.raises(ValueError, match="batch_size must be in 1 … 320, got 321"):
        ShuffledActivations(store, 321)
    with pytest.raises(ValueError, match="buffer_rows must be ≥ batch_size, got 10"):
        ShuffledActivations(store, 32, buffer_rows=10)


def test_wrong_types_are_named(tmp_path):
    model = Counting()
    for options, message in (
        ({"model": "m"}, "model must be a torch module, got 'm'"),
        ({"hook_point": 3}, "hook_point must be a text, got 3"),
        ({"batches": None}, "batches must be batches of inputs, got None"),
        ({"skip_positions": 1.0}, "skip_positions must be an integer, got 1.0"),
        ({"batches_per_shard": True}, "batches_per_shard must be an integer, got True"),
    ):
        given = {"model": model, "hook_point": "layer", "batches": texts(1), "folder": tmp_path, **options}
        with pytest.raises(TypeError) as error:
            collect_activations(**given)
        assert str(error.value) == f"collect_activations: {message}"


def test_a_folder_that_cannot_be_written_is_noticed_before_the_network_runs(tmp_path):
    model = Counting()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match="collect_activations: folder must be a folder that can be written to"):
        collect_activations(model, "layer", texts(1), tmp_path / "file")
    assert model.calls == 0
