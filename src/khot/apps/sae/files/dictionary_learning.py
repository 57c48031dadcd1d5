"""Folders of dictionary_learning: ``config.json`` and ``ae.pt``; only tensors are read, no code is run."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from khot.apps.sae.files._reading import NAME, filled, read_config, stated, whole_number

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["WEIGHTS", "read"]

WEIGHTS = "ae.pt"
_CONFIG = "config.json"
_CLASSES = {
    "AutoEncoderTopK": "topk",
    "BatchTopKSAE": "batch_topk",
    "MatryoshkaBatchTopKSAE": "batch_topk",
    "JumpReluAutoEncoder": "jumprelu",
}


def read(make: type[SparseAutoencoder], weights: Path) -> SparseAutoencoder:
    """Read a folder written by the trainers of dictionary_learning."""
    path = weights.parent / _CONFIG
    trainer = stated(read_config(path), "trainer", path)
    kind = stated(trainer, "dict_class", path)
    if kind not in _CLASSES:
        raise ValueError(f"{NAME}: {path} has dict_class {kind!r}; khot reads {', '.join(_CLASSES)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old or foreign pickles, which are refused or read as well
            tensors = cast("dict[str, Tensor]", torch.load(weights, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(
            f"{NAME}: {weights} does not hold tensors alone ({str(error).splitlines()[0]})"
        ) from error
    activation = _CLASSES[kind]
    settings: dict[str, Any] = {"activation": activation, "subtract_b_dec": activation != "jumprelu"}
    if "encoder.weight" in tensors and "decoder.weight" in tensors:
        tensors["W_enc"], tensors["b_enc"] = tensors.pop("encoder.weight"), tensors.pop("encoder.bias")
        tensors["W_dec"] = tensors.pop("decoder.weight").T
    elif "W_enc" in tensors:
        tensors["W_enc"] = tensors["W_enc"].T
    else:
        raise ValueError(f"{NAME}: {weights} lacks the weights of an encoder")
    latents, d_in = tensors["W_enc"].shape
    level = tensors.pop("threshold", None)
    if activation == "jumprelu":
        k = latents
        if level is None:
            raise ValueError(f"{NAME}: {weights} lacks threshold, without which {kind} is plain ReLU")
        settings["threshold"] = level
    else:
        k = whole_number(trainer, "k", path)
        if "k" in tensors and int(tensors["k"]) != k:
            raise ValueError(f"{NAME}: {path} has k = {k}, {weights.name} has {int(tensors['k'])}")
        if activation == "batch_topk" and level is not None and float(level) >= 0:
            settings["threshold"] = level
    tensors.pop("k", None)
    sizes = tensors.pop("group_sizes", None)
    if sizes is not None:
        settings["prefixes"] = tuple(int(end) for end in sizes.cumsum(0))
    made = make(d_in, latents, k, normalize_decoder=False, dtype=tensors["W_enc"].dtype, **settings)
    return filled(made, tensors, weights)
