"""Folders of SAELens 6: ``cfg.json`` and ``sae_weights.safetensors``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from khot.apps.sae.files._reading import (
    NAME,
    TYPES,
    check_same,
    check_shapes,
    filled,
    matrices,
    read_config,
    sizes_of,
    stated,
    switch,
    whole_number,
)
from khot.files.tensors import read_tensors, tensor_writer
from khot.files.whole import json_writer, write_together

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["WEIGHTS", "read", "write"]

WEIGHTS = "sae_weights.safetensors"
_CONFIG = "cfg.json"
_SAVED = (
    "architecture",
    "d_in",
    "d_sae",
    "d_out",
    "k",
    "dtype",
    "apply_b_dec_to_input",
    "rescale_acts_by_decoder_norm",
)
_TRAINING = ("batchtopk", "matryoshka_batchtopk")  # SAELens itself opens them for training only
_TRANSCODERS = ("jumprelu_transcoder", "jumprelu_skip_transcoder")
_ARCHITECTURES = ("topk", "jumprelu", *_TRANSCODERS, *_TRAINING)


def write(autoencoder: SparseAutoencoder, folder: Path, about: Mapping[str, Any]) -> None:
    """Write a folder; see :meth:`khot.apps.sae.SparseAutoencoder.save`."""
    options = autoencoder.options
    saved = autoencoder
    if options.activation in ("batch_topk", "jumprelu"):
        saved = autoencoder.as_jumprelu()
    elif options.transcoder or options.skip:
        raise ValueError(
            f"SparseAutoencoder.save: SAELens has no {options.activation} transcoder and no "
            f"{options.activation} with a skip; "
            "save as_jumprelu(x), or format='sparsify'"
        )
    tensors = {name: parameter.detach() for name, parameter in saved.named_parameters()}
    centred = saved.options.subtract_b_dec
    if saved.W_skip is not None and centred:  # their skip belongs to transcoders, which do not subtract b_dec
        tensors["b_enc"] = tensors["b_enc"] - tensors["W_enc"] @ tensors["b_dec"]
        centred = False
    tensors["W_enc"] = tensors["W_enc"].T
    config: dict[str, Any] = {
        "d_in": options.d_in,
        "d_sae": options.num_latents,
        "dtype": str(saved.W_enc.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": centred,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {**about, "khot_activation": options.activation, "khot_k": options.k},
        "architecture": "topk",
    }
    if saved.threshold is not None:
        tensors["threshold"] = saved.threshold.to(saved.W_enc.dtype)
        config["architecture"] = "jumprelu"
        if options.transcoder or options.skip:
            config["architecture"] = _TRANSCODERS[saved.W_skip is not None]
            config["d_out"] = options.d_out
    else:
        config |= {"k": options.k, "rescale_acts_by_decoder_norm": options.scale_by_decoder_norm}
    record = {field: config[field] for field in _SAVED if field in config}
    write_together(
        {
            folder / WEIGHTS: tensor_writer(tensors, {"khot_config": record}),
            folder / _CONFIG: json_writer(config),
        }
    )


def read(make: type[SparseAutoencoder], weights: Path) -> SparseAutoencoder:
    """Read a folder written by SAELens or by :func:`write`."""
    path = weights.parent / _CONFIG
    config = read_config(path)
    architecture = stated(config, "architecture", path)
    if architecture not in _ARCHITECTURES:
        raise ValueError(
            f"{NAME}: {path} has architecture {architecture!r}; khot reads {', '.join(_ARCHITECTURES)}"
        )
    for field in ("normalize_activations", "reshape_activations"):
        if config.get(field, "none") not in ("none", None):
            raise ValueError(f"{NAME}: {path} has {field} = {config[field]!r}; khot reads 'none'")
    dtype = getattr(torch, str(stated(config, "dtype", path)).removeprefix("torch."), None)
    if dtype not in TYPES:
        raise ValueError(f"{NAME}: {path} has dtype {config['dtype']!r}, which is no type of real numbers")
    tensors, about = read_tensors(weights)
    sizes_of(tensors, "W_enc", weights)
    tensors["W_enc"] = tensors["W_enc"].T
    latents = whole_number(config, "d_sae", path)
    transcoder = architecture in _TRANSCODERS
    settings: dict[str, Any] = {
        "transcoder": transcoder,
        "skip": architecture == "jumprelu_skip_transcoder",
        "d_out": whole_number(config, "d_out", path) if transcoder else None,
        "subtract_b_dec": switch(config, "apply_b_dec_to_input", path),
        "normalize_decoder": False,
        "dtype": dtype,
    }
    if architecture == "topk" or architecture in _TRAINING:
        settings["scale_by_decoder_norm"] = switch(config, "rescale_acts_by_decoder_norm", path)
        settings["activation"] = "topk" if architecture == "topk" else "batch_topk"
        k = whole_number(config, "k", path)
    else:
        settings["activation"] = "jumprelu"
        notes: Any = config.get("metadata")
        written_by_khot = isinstance(notes, Mapping) and "khot_k" in notes
        k = whole_number(cast("Mapping[str, Any]", notes), "khot_k", path) if written_by_khot else latents
    name = "topk_threshold" if architecture in _TRAINING else "threshold"
    if architecture != "topk":
        if name not in tensors:
            raise ValueError(f"{NAME}: {weights} lacks {name}, without which {architecture} is plain ReLU")
        if tensors[name].dtype not in TYPES or not tensors[name].numel():
            raise ValueError(f"{NAME}: {weights}: {name} must be real numbers, got {tensors[name]}")
        level = tensors.pop(name).float()
        unknown = architecture in _TRAINING and bool((level < 0).all())  # they write −1
        settings["threshold"] = None if unknown else level
    if architecture == "matryoshka_batchtopk":
        widths: Any = config.get("matryoshka_widths") or ()
        if not isinstance(widths, list | tuple) or not all(type(w) is int for w in cast("list[Any]", widths)):
            raise ValueError(
                f"{NAME}: {path} has matryoshka_widths = {widths!r}, which must be whole numbers"
            )
        settings["prefixes"] = tuple(cast("list[int]", widths))
    check_same(config, about.get("khot_config"), path)
    d_in = whole_number(config, "d_in", path)
    shapes = matrices(latents, d_in, settings["d_out"] or d_in, settings["skip"])
    check_shapes(tensors, shapes, weights)
    return filled(make(d_in, latents, k, **settings), tensors, weights)
