"""Load a language model of transformers and split a text into sequences, to collect activations."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["load_language_model", "token_batches"]

_CHARACTERS = 200_000  # of a text that are tokenised at once


def load_language_model(source: str) -> tuple[nn.Module, Any]:
    """A model and its tokenizer from a folder, a GGUF file or a name that transformers knows.

    transformers downloads a name that is not on this machine; with ``HF_HUB_OFFLINE=1`` it does not.

    Args:
        source: any argument of ``from_pretrained``, or the path of a ``.gguf`` file.

    Returns:
        The model in float32 and evaluation mode, with a language-model head if it has one, and the tokenizer.
    """
    try:
        transformers = cast(Any, importlib.import_module("transformers"))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'khot sae: a model of transformers needs transformers: pip install "khot[sae]"'
        ) from error
    path = Path(source)
    options: dict[str, Any] = {"trust_remote_code": False}  # never runs code that comes with a model
    place = source
    if path.suffix == ".gguf":
        place, options["gguf_file"] = str(path.parent), path.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
    made = transformers.AutoConfig.from_pretrained(place, **options).architectures or ["…ForCausalLM"]
    is_causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in made)
    kind = transformers.AutoModelForCausalLM if is_causal else transformers.AutoModel
    model = kind.from_pretrained(place, dtype=torch.float32, **options)
    return model.eval(), tokenizer


def token_batches(tokenizer: Any, text: str, tokens: int, length: int = 128, batch: int = 16) -> list[Tensor]:
    """Batches of sequences of equal length from the first tokens of a text; the incomplete rest is dropped.

    Args:
        tokenizer: a tokenizer of transformers.
        text: the text.
        tokens: the largest number of tokens.
        length: tokens per sequence.
        batch: sequences per batch.

    Returns:
        Tensors (batch, length); the last may have fewer sequences.
    """
    found: list[int] = []
    for start in range(0, len(text), _CHARACTERS):
        if len(found) >= tokens:
            break
        found += tokenizer(text[start : start + _CHARACTERS], add_special_tokens=False)["input_ids"]
    count = min(len(found), tokens) // length
    if not count:
        raise ValueError(f"token_batches: the text has {len(found)} tokens, fewer than length = {length}")
    sequences = torch.tensor(found[: count * length]).view(count, length)
    return list(torch.split(sequences, batch))
