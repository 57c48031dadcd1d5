"""Folders of dictionary_learning: ``config.json`` and ``ae.pt``; only tensors are read, no code is run."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from khot.apps.sae.files._reading import (
    NAME,
    TYPES,
    check_shapes,
    filled,
    matrices,
    read_config,
    sizes_of,
    stated,
    whole_number,
)
from khot.files.untrusted import check_archive

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
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise ValueError(f"{NAME}: {path} has dict_class {kind!r}; khot reads {', '.join(_CLASSES)}")
    tensors = _tensors(weights)
    activation = _CLASSES[kind]
    settings: dict[str, Any] = {"activation": activation, "subtract_b_dec": activation != "jumprelu"}
    if "encoder.weight" in tensors and "decoder.weight" in tensors:
        for theirs, ours in (("weight", "W_enc"), ("bias", "b_enc")):
            if f"encoder.{theirs}" in tensors:
                tensors[ours] = tensors.pop(f"encoder.{theirs}")
        sizes_of(tensors, "decoder.weight", weights)
        tensors["W_dec"] = tensors.pop("decoder.weight").T
    elif "W_enc" in tensors:
        sizes_of(tensors, "W_enc", weights)
        tensors["W_enc"] = tensors["W_enc"].T
    else:
        raise ValueError(f"{NAME}: {weights} lacks the weights of an encoder")
    latents, d_in = sizes_of(tensors, "W_enc", weights)
    level = tensors.pop("threshold", None)
    if activation == "jumprelu":
        k = latents
        if level is None:
            raise ValueError(f"{NAME}: {weights} lacks threshold, without which {kind} is plain ReLU")
        if level.dtype not in TYPES:
            raise ValueError(f"{NAME}: {weights}: threshold must be real numbers, got {level.dtype}")
        settings["threshold"] = level
    else:
        k = whole_number(trainer, "k", path)
        if "k" in tensors and _number(tensors, "k", weights) != k:
            raise ValueError(f"{NAME}: {path} has k = {k}, {weights.name} has {tensors['k'].item()}")
        if activation == "batch_topk" and level is not None:
            found = _number({"threshold": level}, "threshold", weights)
            settings["threshold"] = found if found >= 0 else None
    tensors.pop("k", None)
    sizes = tensors.pop("group_sizes", None)
    if sizes is not None:
        if sizes.dim() != 1 or sizes.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"{NAME}: {weights}: group_sizes must be whole numbers, got {sizes}")
        settings["prefixes"] = tuple(int(end) for end in sizes.cumsum(0))
    check_shapes(tensors, matrices(latents, d_in, d_in), weights)
    made = make(d_in, latents, k, normalize_decoder=False, dtype=tensors["W_enc"].dtype, **settings)
    return filled(made, tensors, weights)


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of ``torch.save``; what is anything else is refused."""
    try:
        if zipfile.is_zipfile(path):
            check_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old or foreign pickles, which are refused or read as well
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes of the parser
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ValueError(f"{NAME}: {path} does not hold tensors alone ({reason})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{NAME}: {path} must hold tensors by name, got {type(found).__name__}")
    for name, tensor in cast("dict[Any, Any]", found).items():
        if not isinstance(name, str) or not _is_plain(tensor):
            raise ValueError(
                f"{NAME}: {path}: {name!r} must be a dense tensor that the file holds completely"
            )
    return {str(name): tensor for name, tensor in cast("dict[Any, Tensor]", found).items()}


def _is_plain(value: Any) -> bool:
    """A dense tensor with as many elements in memory as it has: a stride of 0 repeats one a billion times."""
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


def _number(tensors: dict[str, Tensor], name: str, path: Path) -> float:
    if tensors[name].numel() != 1 or tensors[name].is_complex():
        raise ValueError(
            f"{NAME}: {path}: {name} must be one number, got the shape {tuple(tensors[name].shape)}"
        )
    return float(tensors[name])
